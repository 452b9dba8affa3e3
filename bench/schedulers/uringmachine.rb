require "uringmachine"
require "uringmachine/fiber_scheduler"
UringMachine::FiberScheduler.new

require "fiber_scheduler"
FiberScheduler.new

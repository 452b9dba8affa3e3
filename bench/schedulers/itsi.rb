require "itsi/scheduler"
Itsi::Scheduler.new

require "async"
Async::Scheduler.new

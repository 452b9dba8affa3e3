require "reactor"
Reactor::Scheduler.new # the harness sets REACTOR_BACKEND

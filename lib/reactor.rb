# frozen_string_literal: true

# A fast Fiber::Scheduler for Ruby. One line switches a thread to it:
#
#   Fiber.set_scheduler(Reactor::Scheduler.new)
#
# From then on whatever blocks inside `Fiber.schedule { … }` stops that fiber only.
module Reactor
end

require_relative "reactor/version"
require_relative "reactor/native"
require_relative "reactor/scheduler"

# frozen_string_literal: true

# A fast Fiber::Scheduler for Ruby. Enable it for the current thread with one line:
#
#   Fiber.set_scheduler(Reactor::Scheduler.new)
#
# From then on, an operation that blocks inside `Fiber.schedule { … }` suspends only its own fiber.
module Reactor
  # Both gems have files of the same names, so `require` would mix them.
  raise LoadError, 'the gem "reactor" is a different project from this one, "reactor-loop": remove "reactor" from your Gemfile' if defined?(Gem) && Gem.loaded_specs.key?("reactor")
end

require_relative "reactor/version"
require_relative "reactor/scheduler"
require_relative "reactor/server"
require_relative "reactor/run"
require_relative "reactor/group"
require_relative "reactor/deadline"
require_relative "reactor/shield"
require_relative "reactor/semaphore"
require_relative "reactor/rate_limit"

# Ruby passes an IO::Buffer to the buffer hooks, and warns once per process that IO::Buffer is experimental. A program that merely
# reads a socket can do nothing about that, so trigger the warning here, silenced.
experimental = Warning[:experimental]
begin
  Warning[:experimental] = false
  IO::Buffer.new(0)
ensure
  Warning[:experimental] = experimental
end

module Reactor
  # The public API. Everything else may change between versions.
  api = %i[VERSION Scheduler Lifecycle Offload Watching Watcher Inspection FiberStatus LockHolder Stall Histogram Processes IOSelect
           AddressResolution NativeScheduler Group Cancelled Deadline DeadlineExceeded Semaphore RateLimit Server Health
           SnapshotServer SocketPlace Testing AsyncSelector]
  __send__(:private_constant, *constants - api)
end

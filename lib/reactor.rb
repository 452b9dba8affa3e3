# frozen_string_literal: true

# A fast Fiber::Scheduler for Ruby. One line switches a thread to it:
#
#   Fiber.set_scheduler(Reactor::Scheduler.new)
#
# From then on an operation that blocks inside `Fiber.schedule { … }` stops that fiber only.
module Reactor
  # Its files have the names of ours, so some of each would be loaded.
  raise LoadError, 'the gem "reactor" is another project than this one, "reactor-loop": take it out of your Gemfile' if defined?(Gem) && Gem.loaded_specs.key?("reactor")
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

# Ruby calls the buffer hooks with an IO::Buffer, and warns once in a process that these are experimental. The program that
# reads a socket cannot do anything about it, so the warning is taken here.
experimental = Warning[:experimental]
begin
  Warning[:experimental] = false
  IO::Buffer.new(0)
ensure
  Warning[:experimental] = experimental
end

module Reactor
  # What a program may use. The rest may change from one version to the next.
  api = %i[VERSION Scheduler Lifecycle Offload Watching Watcher Inspection FiberStatus Holder Stall Histogram Processes IOSelect
           AddressResolution NativeScheduler PortableScheduler Group DeadlineExceeded Semaphore RateLimit Server Health
           Observer SocketPlace Testing AsyncSelector]
  __send__(:private_constant, *constants - api)
end

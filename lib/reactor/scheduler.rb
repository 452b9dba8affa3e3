# frozen_string_literal: true

require_relative "native_library"
require_relative "child_events"
require_relative "observe/inspection"
require_relative "observe/stalls"
require_relative "patches"
require_relative "schedulers"
require_relative "workers/offload_policy"
require_relative "scheduler/addresses"
require_relative "scheduler/deadlock"
require_relative "scheduler/io_select"
require_relative "scheduler/lifecycle"
require_relative "scheduler/offload"
require_relative "scheduler/processes"
require_relative "scheduler/watcher"
require_relative "scheduler/watching"

module Reactor
  # The scheduler of one thread. `Fiber.set_scheduler` installs it for the current thread.
  #
  #   Fiber.set_scheduler(Reactor::Scheduler.new)
  #   Fiber.schedule { … }
  #
  # It inherits its hooks, so a hot hook is a single call into native code with no wrapper. It may be subclassed: every hook may
  # be overridden, and `super` works.
  #
  # A scheduler belongs to the first thread that uses it. On any other thread its methods raise ThreadError, except `unblock`,
  # `fiber_interrupt` and the methods of {Inspection}.
  class Scheduler < NativeScheduler
    include AddressResolution
    include IOSelect
    include Processes
    include Offload
    include Watching
    include Inspection
    include Deadlock
    include Lifecycle

    # Makes sure that every scheduler object is initialized. An uninitialized one would have no thread and no descriptors.
    #
    # @api private
    module Allocation
      # Takes explicit arguments, because Ruby 3.4 crashes when several Ractors call `super` with `...` at once.
      #
      # @raise [RuntimeError] a subclass's `initialize` does not call super
      def new(*arguments, **options, &block)
        scheduler = super
        return scheduler if scheduler.instance_variable_defined?(:@trap_check)

        raise "uninitialized scheduler: #{self}#initialize must call super"
      end

      # @raise [TypeError] always, like Ruby's own classes without an allocator
      def allocate = raise(TypeError, "allocator undefined for #{self}")
    end
    private_constant :Allocation
    extend Allocation
  end
end

unless ENV.fetch("REACTOR_SHUFFLE", "").empty?
  require_relative "scheduler/shuffle"
  Reactor::Scheduler.prepend(Reactor::Shuffle)
end

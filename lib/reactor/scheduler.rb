# frozen_string_literal: true

require_relative "backend"
require_relative "patches/io_close"
require_relative "observe/inspection"
require_relative "observe/stalls"
require_relative "observe/trace_writer"
require_relative "patches/file"
require_relative "patches/installer"
require_relative "patches/socket_write_order"
require_relative "workers/policy"
require_relative "scheduler/lifecycle"
require_relative "patches/name_resolution/resolving"

module Reactor
  # The scheduler: give one to `Fiber.set_scheduler` on each thread that shall have it.
  #
  #   Fiber.set_scheduler(Reactor::Scheduler.new)
  #   Fiber.schedule { … }
  #
  # It inherits the hooks from the selector, so that a hot hook is one call into native code and nothing around it.
  # May be subclassed; every hook may be overridden and `super` works.
  class Scheduler < Selector
    include Lifecycle
    include AddressResolution

    # @param backend [Symbol, String, nil] see {Reactor.backends}; nil: REACTOR_BACKEND, else the best
    # @param options see {Lifecycle#initialize}
    # @return [Scheduler, Scheduler::Portable] the latter if :select is asked for while the native selector is loaded
    # @raise [ArgumentError] the backend is unknown or cannot be had, or is :select in a subclass of the native one
    def self.new(*arguments, **options, &block)
      return super if self <= PortableScheduler || Reactor.choose(options[:backend]) != :select
      return Scheduler::Portable.new(*arguments, **options, backend: :select) if equal?(Scheduler)

      raise ArgumentError, "#{self} inherits from the native selector; set REACTOR_BACKEND=select before requiring reactor to put it on the portable one"
    end

    # The portable scheduler, also there when the native one is loaded: for comparing the two, and for tests.
    class Portable < PortableScheduler
      include Lifecycle
      include AddressResolution

      # @param backend [Symbol, String] nothing but :select
      # @param options see {Lifecycle#initialize}
      # @raise [ArgumentError] any other name
      def initialize(backend: :select, **options) = super
    end
  end
end

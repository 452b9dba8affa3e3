# frozen_string_literal: true

require_relative "backend"
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
  # The scheduler of one thread. `Fiber.set_scheduler` makes it the current thread's.
  #
  #   Fiber.set_scheduler(Reactor::Scheduler.new)
  #   Fiber.schedule { … }
  #
  # It inherits the hooks, so that a hot hook is one call into native code and nothing around it. It may be subclassed; every
  # hook may be overridden, and `super` works.
  #
  # A scheduler belongs to the thread that uses it first. On another thread its methods raise ThreadError, except for the
  # methods of {Inspection}, `unblock` and `fiber_interrupt`.
  class Scheduler < BaseScheduler
    # Methods of every scheduler besides its hooks.
    module Parts
      include AddressResolution
      include IOSelect
      include Processes
      include Offload
      include Watching
      include Inspection
      include Deadlock
      include Lifecycle
    end
    private_constant :Parts

    include Parts

    # How a scheduler object is made. One that was never initialized has no thread and no descriptors.
    #
    # @api private
    module Allocation
      # Ruby 3.4 crashes if several Ractors call `super` with the arguments of `...` at once.
      #
      # @raise [RuntimeError] an `initialize` of a subclass does not call super
      def new(*arguments, **options, &block)
        scheduler = super
        return scheduler if scheduler.instance_variable_defined?(:@trap_check)

        raise "uninitialized scheduler: #{self}#initialize must call super"
      end

      # @raise [TypeError] always, as for Ruby's own classes whose objects `new` has to initialize
      def allocate = raise(TypeError, "allocator undefined for #{self}")
    end
    private_constant :Allocation
    extend Allocation

    # @option options [Symbol, String, nil] :backend see {Reactor.backends}; nil: REACTOR_BACKEND, else the best one
    # @param options see {Lifecycle#initialize}
    # @return [Scheduler, Scheduler::Portable] a Portable if :select is asked for while the native library is loaded
    # @raise [ArgumentError] the backend is unknown or not available, or it is :select in a subclass of the native scheduler
    def self.new(*arguments, **options, &block)
      return super if self <= PortableScheduler || Internal.choose(options[:backend]) != :select
      return Portable.new(*arguments, **options, backend: :select) if equal?(Scheduler)

      raise ArgumentError, "#{self} inherits from the native scheduler; set REACTOR_BACKEND=select before requiring reactor to put it on the portable one"
    end

    # @return [Boolean] also true of a Portable
    def self.===(object) = super || (equal?(Scheduler) && Portable === object)

    # The portable scheduler. It is also there if the native one is loaded, for comparing the two and for tests. It cannot inherit from
    # Scheduler, which has the native hooks then, but it is a Scheduler to `is_a?` and `case`.
    class Portable < PortableScheduler
      include Parts
      extend Allocation

      # @param backend [Symbol, String] only :select is allowed
      # @param options see {Lifecycle#initialize}
      # @raise [ArgumentError] any other name
      def initialize(backend: :select, **options) = super

      # @return [Boolean] also true of {Scheduler}
      def is_a?(klass) = super || klass.equal?(Scheduler)
      alias kind_of? is_a?
    end
  end
end

unless ENV.fetch("REACTOR_SHUFFLE", "").empty?
  require_relative "scheduler/shuffle"
  [Reactor::Scheduler, Reactor::Scheduler::Portable].each { |scheduler| scheduler.prepend(Reactor::Shuffle) }
end

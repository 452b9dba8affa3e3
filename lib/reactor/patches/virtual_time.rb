# frozen_string_literal: true

module Reactor
  module Patches
    # The patches of Reactor::Testing.virtual_time, for methods that use the system's clock instead of the scheduler. On a thread
    # with real time they do what Ruby does.
    #
    # @api private
    module VirtualTime
      # Raised when a wait reaches its virtual time limit.
      class Elapsed < Exception # rubocop:disable Lint/InheritException -- no rescue in the program may catch it
      end

      # unit of Process.clock_gettime => its length in nanoseconds, and whether results are Floats
      UNITS = Ractor.make_shareable({
        nanosecond: [1, false], microsecond: [1_000, false], millisecond: [1_000_000, false], second: [1_000_000_000, false],
        float_microsecond: [1_000, true], float_millisecond: [1_000_000, true], float_second: [1_000_000_000, true]
      })

      # The name of the thread variable that holds the virtual clock.
      KEY = :reactor_virtual_clock
      private_constant :Elapsed, :UNITS, :KEY

      class << self
        # @return [Testing::Clock, nil] the virtual clock of this thread; nil if its time is real
        def clock = Thread.current.thread_variable_get(KEY)

        # @param clock [Testing::Clock, nil]
        def clock=(clock)
          Thread.current.thread_variable_set(KEY, clock)
        end

        # @return [Boolean] whether waits of this fiber take virtual time
        def virtual? = !clock.nil? && !Fiber.current_scheduler.nil?

        # As {Testing.hold}.
        def hold
          scheduler = clock&.scheduler
          scheduler&.virtual_hold(true)
          yield
        ensure
          scheduler&.virtual_hold(false)
        end

        # Runs a block that waits, with a virtual time limit. (Given the limit, Ruby itself would check the real clock after a
        # wait, and continue to wait.)
        #
        # @param seconds [Numeric] a negative number counts as 0
        # @return what the block returns; nil when the time limit elapses
        def limit(seconds)
          own = Elapsed.new
          Fiber.scheduler.timeout_after(seconds, own) { yield }
        rescue Elapsed => error
          raise unless error.equal?(own)
        end

        # Runs a block that waits: with a virtual time limit if waits of this fiber take virtual time, or else with the limit that it gets.
        #
        # @param now [Object] whether it does not wait
        # @yieldparam limit [Numeric, nil]
        def limited(limit, now = false) = limit && !now && virtual? ? limit(limit) { yield nil } : yield(limit)

        # @return [Integer, Float] the time in a unit of Process.clock_gettime
        # @raise [ArgumentError] the unit is unknown
        def in_unit(nanoseconds, unit)
          divisor, float = UNITS.fetch(unit || :float_second) { raise ArgumentError, "unexpected unit: #{unit}" }
          float ? nanoseconds / divisor.to_f : nanoseconds / divisor
        end
      end

      # Of Process's singleton class.
      module ProcessClock
        def clock_gettime(id, unit = :float_second)
          nanoseconds = VirtualTime.clock&.nanoseconds(id)
          nanoseconds ? VirtualTime.in_unit(nanoseconds, unit) : reactor_process_clock_gettime(id, unit)
        end
      end

      # Of Time's singleton class.
      module TimeNow
        def now(**options)
          nanoseconds = VirtualTime.clock&.nanoseconds(Process::CLOCK_REALTIME)
          nanoseconds ? at(0, nanoseconds, :nanosecond, **options) : reactor_time_now(**options)
        end

        def new(*given, **options) = given.empty? && VirtualTime.clock ? now(**options) : reactor_time_new(*given, **options)
      end

      # Of Kernel's singleton class. Kernel.sleep returns how long it slept.
      module KernelSleep
        def sleep(*)
          return reactor_kernel_sleep(*) unless VirtualTime.virtual?

          before = VirtualTime.clock.elapsed
          reactor_kernel_sleep(*)
          (VirtualTime.clock.elapsed - before).round
        end
      end

      # Of Queue.
      module QueuePop
        def pop(now = false, timeout: nil) = VirtualTime.limited(timeout, now) { |limit| reactor_thread_queue_pop(now, timeout: limit) }
        def shift(now = false, timeout: nil) = VirtualTime.limited(timeout, now) { |limit| reactor_thread_queue_shift(now, timeout: limit) }
        def deq(now = false, timeout: nil) = VirtualTime.limited(timeout, now) { |limit| reactor_thread_queue_deq(now, timeout: limit) }
      end

      # Of SizedQueue.
      module SizedQueueWaits
        { pop: "", shift: "", deq: "", push: "object, ", enq: "object, " }.each do |name, object|
          class_eval(<<~RUBY, __FILE__, __LINE__ + 1)
            def #{name}(#{object}now = false, timeout: nil)
              VirtualTime.limited(timeout, now) { |limit| reactor_thread_sizedqueue_#{name}(#{object}now, timeout: limit) }
            end
          RUBY
        end
      end

      # Of Thread.
      module ThreadJoin
        def join(limit = nil) = VirtualTime.limited(limit) { |real| reactor_thread_join(real) }
      end
    end
  end
end

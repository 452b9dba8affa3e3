# frozen_string_literal: true

require_relative "../reactor"

module Reactor
  # For tests of programs that wait. Not loaded by default: require "reactor/testing".
  #
  # == The clock
  #
  # Inside of {virtual_time} the clock stands still while any fiber can run. When none can, it jumps to the moment at
  # which the next sleep, timeout or timer is due, and the fibers due then run in the order in which they were to be
  # woken, those of the same moment in the order in which they began to wait. So an hour takes no time, and the same
  # program runs in the same order each time, however fast or busy the machine.
  #
  # It is the clock of everything that waits through the scheduler (sleep, Timeout.timeout, wait_readable, IO#timeout,
  # IO.select, Queue#pop, ConditionVariable#wait, Thread#join, Net::HTTP's timeouts …), and on this thread also what
  # Process.clock_gettime shows of the real time and of the monotonic clocks, and Time.now: a program that computes a
  # deadline, a delay or an age sees the time that it slept. (Clocks of CPU time stay what they are, other threads see
  # real time, and so does what asks the system itself, such as Date.today.) A loop that waits for a clock without ever
  # waiting for anything does not end, for time passes only while fibers wait.
  #
  # == Input and output are real
  #
  # Before each jump the scheduler looks at its descriptors, and what is ready goes first. If a fiber waits for something
  # that a timer does not bring (a descriptor, a child process, another thread that is not itself waiting for ever), it
  # then waits for +settle+ real seconds, so that what is on its way may arrive, and only then lets the clock jump. A
  # peer in the same thread answers before, always: the clock jumps only when it, too, can do nothing more. One outside of
  # it that takes longer than +settle+ finds that timeouts have struck: give it time by a larger +settle+, or run that
  # part in {hold}. Work the scheduler itself does beside the loop (files, name resolution) is waited for to its end.
  module Testing
    # Where a thread keeps its virtual clock.
    KEY = :reactor_virtual_clock
    private_constant :KEY

    class << self
      # Runs the block in a fiber under a scheduler of its own, whose time is virtual, and then all other fibers to their
      # end. If the block raises, the other fibers are cancelled.
      #
      # @param settle [Numeric] real seconds to wait before a jump for whatever is not a timer
      # @param backend [Symbol, String, nil] see {Reactor.backends}
      # @yieldparam clock [Clock]
      # @return what the block returns
      # @raise what the block raises, else the first error of another fiber
      # @raise [RuntimeError] this thread has a scheduler already
      def virtual_time(settle: 0.01, backend: nil, &block)
        raise ArgumentError, "no block given" unless block
        raise "this thread has a scheduler already, whose time is real" if Fiber.scheduler

        Overrides.install
        scheduler = Scheduler.new(backend: backend)
        scheduler.singleton_class.prepend(Hooks)
        clock = Clock.new(scheduler, settle)
        run(scheduler, clock, &block)
      end

      # Keeps the clock from jumping until the block has ended: for what takes real time and shall not be timed out, a
      # child process, say. Outside of {virtual_time} it just runs the block.
      #
      # @return what the block returns
      def hold
        scheduler = clock&.scheduler
        return yield unless scheduler

        begin
          scheduler.virtual_hold(true)
          yield
        ensure
          scheduler.virtual_hold(false)
        end
      end

      # The virtual clock of this thread; nil where time is real.
      #
      # @return [Clock, nil]
      def clock = Thread.current.thread_variable_get(KEY)

      private

      def run(scheduler, clock)
        Thread.current.thread_variable_set(KEY, clock)
        Fiber.set_scheduler(scheduler)
        value = nil
        Fiber.schedule do
          value = yield clock
        rescue Exception => error # rubocop:disable Lint/RescueException -- also failed assertions
          raise Failure.new(error) # which ends the run at once
        end
        scheduler.run
        value
      rescue Failure => failure
        raise failure.error
      ensure
        Fiber.set_scheduler(nil) if Fiber.scheduler.equal?(scheduler)
        scheduler.close
        Thread.current.thread_variable_set(KEY, nil)
      end
    end

    # Not a StandardError: the scheduler then cancels all other fibers.
    class Failure < Exception # rubocop:disable Lint/InheritException
      attr_reader :error

      def initialize(error)
        super(error.message)
        @error = error
      end
    end
    private_constant :Failure

    # What time it is inside of {Testing.virtual_time}.
    class Clock
      # @api private
      attr_reader :scheduler

      # @api private
      def initialize(scheduler, settle)
        @scheduler = scheduler
        @real = CLOCKS.to_h { |id| [id, Process.clock_gettime(id, :nanosecond).then { |start| start - start % STEP }] }
        scheduler.virtual_time(settle)
      end

      # @return [Float] virtual seconds since it began
      def elapsed = @scheduler.virtual_elapsed / 1e9

      # @return [Integer, nil] what a clock shows, in nanoseconds; nil if it stays real
      # @api private
      def nanoseconds(id)
        start = @real[id]
        start && start + @scheduler.virtual_elapsed
      end
    end

    # Clocks that show virtual time.
    CLOCKS = %i[
      CLOCK_REALTIME CLOCK_REALTIME_COARSE CLOCK_TAI CLOCK_MONOTONIC CLOCK_MONOTONIC_COARSE CLOCK_MONOTONIC_RAW CLOCK_BOOTTIME
    ].filter_map { |name| Process.const_get(name) if Process.const_defined?(name) }.freeze
    private_constant :CLOCKS

    # Clocks begin at a 512th of a second: as Floats, too, they then add up exactly where whole seconds are slept.
    STEP = 1_953_125
    private_constant :STEP

    # What a scheduler whose time is virtual asks.
    module Hooks
      private

      # Whether anything but a timer could wake a fiber.
      def outside?
        hooks = waited_for
        return true if hooks.include?(:io)

        hooks.include?(:block) && Thread.list.any? { |thread| !thread.equal?(Thread.current) && !Inspection.idle?(thread) }
      end

      def now = virtual_elapsed / 1e9
    end
    private_constant :Hooks

    # What Ruby itself times, and asks the system's clock for.
    module Overrides
      # The end of a wait.
      class Elapsed < Exception # rubocop:disable Lint/InheritException -- no rescue of the program's may catch it
      end

      # What to divide nanoseconds by, and whether to keep the fraction.
      UNITS = {
        nanosecond: [1, false], microsecond: [1_000, false], millisecond: [1_000_000, false], second: [1_000_000_000, false],
        float_microsecond: [1_000, true], float_millisecond: [1_000_000, true], float_second: [1_000_000_000, true]
      }.freeze

      class << self
        # For good, but of no effect where time is real. Does nothing the second time.
        def install
          Process.singleton_class.prepend(Clocks)
          Time.singleton_class.prepend(Now)
          Kernel.prepend(Sleep)
          Kernel.singleton_class.prepend(Sleep)
          [Thread::Queue, Thread::SizedQueue].each { |queue| queue.prepend(Pop) }
          Thread::SizedQueue.prepend(Push)
          Thread.prepend(Join)
        end

        # Whether a wait in this fiber takes virtual time.
        def virtual? = !Testing.clock.nil? && !Fiber.current_scheduler.nil?

        # Ruby itself looks at the real clock after a wait, and goes on waiting. nil if the time is over.
        def within(seconds)
          mine = Elapsed.new
          Fiber.scheduler.timeout_after(seconds, mine) { yield }
        rescue Elapsed => error
          raise unless error.equal?(mine)
        end

        # As Process.clock_gettime counts; what it does not know is an error, as there.
        def in_unit(nanoseconds, unit)
          divisor, float = UNITS.fetch(unit || :float_second) { raise ArgumentError, "unexpected unit: #{unit}" }
          float ? nanoseconds / divisor.to_f : nanoseconds / divisor
        end
      end

      # Process.clock_gettime
      module Clocks
        def clock_gettime(id, unit = :float_second)
          nanoseconds = Testing.clock&.nanoseconds(id)
          nanoseconds ? Overrides.in_unit(nanoseconds, unit) : super
        end
      end

      # Time.now
      module Now
        def now(**options)
          nanoseconds = Testing.clock&.nanoseconds(Process::CLOCK_REALTIME)
          nanoseconds ? at(0, nanoseconds, :nanosecond, **options) : super
        end
      end

      # Kernel#sleep returns how long it slept.
      module Sleep
        def sleep(*)
          return super unless Overrides.virtual?

          before = Testing.clock.elapsed
          super
          (Testing.clock.elapsed - before).round
        end
      end

      # Queue#pop
      module Pop
        def pop(non_block = false, timeout: nil)
          return super unless timeout && !non_block && Overrides.virtual?

          Overrides.within([timeout, 0].max) { super(false) }
        end

        def shift(non_block = false, timeout: nil) = pop(non_block, timeout: timeout)
        def deq(non_block = false, timeout: nil) = pop(non_block, timeout: timeout)
      end

      # SizedQueue#push
      module Push
        def push(object, non_block = false, timeout: nil)
          return super unless timeout && !non_block && Overrides.virtual?

          Overrides.within([timeout, 0].max) { super(object, false) }
        end

        def enq(object, non_block = false, timeout: nil) = push(object, non_block, timeout: timeout)
        def <<(object) = push(object)
      end

      # Thread#join
      module Join
        def join(limit = nil)
          return super unless limit && Overrides.virtual?

          Overrides.within([limit, 0].max) { super() }
        end
      end
    end
    private_constant :Overrides
  end
end

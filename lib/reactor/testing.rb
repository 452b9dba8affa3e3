# frozen_string_literal: true

require_relative "../reactor"
require_relative "testing/clock"
require_relative "testing/explore"

module Reactor
  # Tests programs that wait. Not loaded by default: require "reactor/testing".
  #
  # ### The clock
  #
  # In {virtual_time}, the clock stands still as long as any fiber can run. When none can, it jumps to the next sleep, timeout or
  # timer. Fibers then run in the order in which they are due; those due at the same time run in the order in which they began to
  # wait. So an hour passes at once, and the same program always runs in the same order, however fast or busy the machine is.
  #
  # Everything that waits through the scheduler uses this clock: sleep, Timeout.timeout, wait_readable, IO#timeout, IO.select,
  # Queue#pop, ConditionVariable#wait, Thread#join, Net::HTTP's timeouts and more. On this thread Time.now uses it too, and so
  # does Process.clock_gettime for real-time and monotonic clocks, so a program that computes a deadline, a delay or an age sees
  # the time it slept. The difference of two Float readings is exact for whole seconds and rounded for fractions; for those,
  # request `:nanosecond` or use {Clock#elapsed}. CPU time clocks stay real. Other threads see real time, and so does code that
  # asks the system itself (Date.today). A loop that checks the clock without ever waiting does not end, because time passes only
  # while fibers wait.
  #
  # ### Input and output are real
  #
  # Before each jump the scheduler polls its descriptors and serves those that are ready. If a fiber waits for anything but a
  # timer (a descriptor, a child process, another thread that is not itself waiting forever), the scheduler waits for `settle`
  # real seconds before the clock jumps.
  #
  # A peer on the same thread always responds before a timeout: the clock jumps only when the peer cannot run either. If a peer
  # elsewhere takes longer than `settle`, timeouts elapse before it responds. To give it time, increase `settle` or wrap that part
  # in {hold}. The scheduler always waits for its own work on other threads (files, name resolution).
  module Testing
    class << self
      # Runs the block in a fiber under a new scheduler with virtual time, then runs all other fibers to completion. If the block
      # raises, the other fibers are cancelled.
      #
      # @param settle [Numeric] real seconds, at least 0, to wait for other events before a jump
      # @param backend [Symbol, String, nil] see {Reactor.backends}
      # @yieldparam clock [Clock]
      # @return what the block returns
      # @raise what the block raises, otherwise the first error of another fiber
      # @raise [RuntimeError] this thread already has a scheduler
      def virtual_time(settle: 0.01, backend: nil, &block)
        raise ArgumentError, "no block given" unless block
        raise "this thread already has a scheduler" if Fiber.scheduler
        raise TypeError, "settle must be a number of seconds, not nil" if settle.nil?

        settle = Checks.seconds(:settle, settle)

        Patches.install(Patches::VIRTUAL_TIME)
        scheduler = Scheduler.new(backend: backend)
        scheduler.singleton_class.prepend(Hooks)
        clock = Clock.new(scheduler, settle)
        run(scheduler, clock, &block)
      end

      # Keeps the clock from jumping until the block has ended. Use it for operations that take real time and must not time out,
      # such as child processes. Outside {virtual_time} it just runs the block.
      #
      # @return what the block returns
      def hold(&) = Patches::VirtualTime.hold(&)

      # @return [Clock, nil] the virtual clock of this thread, or nil if its time is real
      def clock = Patches::VirtualTime.clock

      private

      def run(scheduler, clock)
        Patches::VirtualTime.clock = clock
        Running.run(scheduler) { yield clock }
      ensure
        Patches::VirtualTime.clock = nil
      end
    end
  end
end

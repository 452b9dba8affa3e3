# frozen_string_literal: true

require_relative "../reactor"
require_relative "testing/clock"
require_relative "testing/explore"

module Reactor
  # For tests of programs that wait. Not loaded by default: require "reactor/testing".
  #
  # ### The clock
  #
  # Inside of {virtual_time} the clock stands still while any fiber can run. When none can, it jumps to the moment of the next
  # sleep, timeout or timer. The fibers that are due then run in the order in which they were to be woken; fibers of the same
  # moment run in the order in which they began to wait. So an hour takes no time, and the same program runs in the same order
  # each time, however fast or busy the machine is.
  #
  # Everything that waits through the scheduler uses this clock: sleep, Timeout.timeout, wait_readable, IO#timeout, IO.select,
  # Queue#pop, ConditionVariable#wait, Thread#join, Net::HTTP's timeouts and more. On this thread Time.now shows it, and
  # Process.clock_gettime for the clocks of real and of monotonic time. So a program that computes a deadline, a delay or an
  # age sees the time that it slept. A difference of two readings as Floats is exact for whole seconds; for parts of a second
  # it is rounded, so ask for `:nanosecond` or use {Clock#elapsed}. Clocks of CPU time stay real. Other threads see real time,
  # and so does code that asks the system itself (Date.today). A loop that watches the clock without ever waiting does not
  # end, because time passes only while fibers wait.
  #
  # ### Input and output are real
  #
  # Before each jump the scheduler polls its descriptors, and what is ready goes first. If a fiber waits for something that is
  # not a timer (a descriptor, a child process, another thread that is not itself waiting forever), the scheduler waits for
  # `settle` real seconds before the clock jumps.
  #
  # A peer in the same thread always answers before a timeout: the clock jumps only when the peer can do nothing more either. A
  # peer outside of the thread that takes longer than `settle` is overtaken by timeouts. Give it time by a larger `settle`, or
  # run that part in {hold}. The scheduler's own work on other threads (files, name resolution) is waited for to its end.
  module Testing
    class << self
      # Runs the block in a fiber under a scheduler of its own with virtual time, and then all other fibers to their
      # end. If the block raises, the other fibers are cancelled.
      #
      # @param settle [Numeric] real seconds, at least 0, to wait before a jump for an event that is not a timer's
      # @param backend [Symbol, String, nil] see {Reactor.backends}
      # @yieldparam clock [Clock]
      # @return what the block returns
      # @raise what the block raises, else the first error of another fiber
      # @raise [RuntimeError] this thread has a scheduler already
      def virtual_time(settle: 0.01, backend: nil, &block)
        raise ArgumentError, "no block given" unless block
        raise "this thread already has a scheduler" if Fiber.scheduler
        raise TypeError, "settle must be a number of seconds, not nil" if settle.nil?

        settle = Options.seconds(:settle, settle)

        Patches.install(Patches::VIRTUAL_TIME)
        scheduler = Scheduler.new(backend: backend)
        scheduler.singleton_class.prepend(Hooks)
        clock = Clock.new(scheduler, settle)
        run(scheduler, clock, &block)
      end

      # Keeps the clock from jumping until the block has ended: for an operation that takes real time and must not be timed
      # out, for example a child process. Outside of {virtual_time} it just runs the block.
      #
      # @return what the block returns
      def hold(&) = Patches::VirtualTime.hold(&)

      # @return [Clock, nil] the virtual clock of this thread; nil if its time is real
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

# frozen_string_literal: true

require_relative "../clock"
require_relative "../durations"
require_relative "../hooks_in_forked_child"
require_relative "../vm"
require_relative "waits"

module Reactor
  class PortableScheduler
    # How a wait begins and ends.

    private

    def begin_wait(kind) = @waits[Fiber.current] = Wait.new(Fiber.current, kind, @waits[Fiber.current])

    # Gives the thread away until the wait is over. However it ends, nothing is left of it afterwards.
    #
    # @param duration [Numeric, nil] seconds after which it ends by itself; 0: when its turn comes again
    # @param lenient [Boolean] whether a negative duration counts as 0, and an infinite one is allowed
    # @yield instead of the first look at the ready queue
    def park(wait, duration = nil, lenient: false)
      seconds = lenient ? Durations.lenient_seconds(duration) : Durations.seconds(duration)
      return ForkedChildHooks.block(seconds) { wait.queued } unless may_park?(wait.outer)

      @recorder.counts[:parks] += 1
      wait.parked_at = @clock
      @descriptors.add(wait) if wait.masks
      set_time_limit(wait, seconds) if seconds
      yield if block_given?
      run_next until wait.woken
      return unless wait.error

      wait.error.equal?(:cancel) ? throw(wait.fiber) : raise(*wait.error)
    ensure
      end_wait(wait)
    end

    # Parks on each of the IOs.
    #
    # @param lookups [Array<Lookup>] end the wait as well
    # @return [Integer, false] the events of all that came, or false
    def wait_on(masks, seconds, kind = :io, lookups = [])
      wait = begin_wait(kind)
      wait.masks = masks
      wait.events = 0
      lookups.each do |lookup|
        lookup.on_done do
          enqueue(wait)
          wake_poll
        end
      end
      park(wait, seconds)
      wait.events.zero? ? false : wait.events
    end

    # Waits for a moment until Process.wait may have an answer. The longer the wait has taken, the longer is the moment. (A
    # thread in Process.wait would take the child, and lose it if the wait is interrupted.)
    #
    # @param since [Float] when the wait began, on the real clock
    def await_child(_pid, _flags, since)
      waited = Clock.real - since
      moment = (waited / 4.0).clamp(0.001, 0.05)
      return kernel_sleep(moment) unless @timers.virtual_now

      # Children live in real time, so they get `settle` seconds of it before the clock may jump. After that the moment is
      # longer than it takes to be idle, or virtual time would never go on.
      moment = 2 * @timers.settle + 0.005 if waited > @timers.settle
      begin
        thread = Thread.new { sleep moment }
        thread.join
      ensure
        thread&.kill
      end
    end

    def set_time_limit(wait, seconds)
      return wait.timer = @timers.add(seconds, wait) unless seconds.zero?

      alone = @ready.empty?
      enqueue(wait)
      poll if alone # a fiber that only yields must not keep descriptors waiting
    end

    # Ends the fiber's waits in {PortableScheduler#block} and {PortableScheduler#kernel_sleep}.
    def end_blocks(fiber)
      wait = @waits[fiber]
      @early_unblocks[fiber] = true if wait.nil? && overridden?
      while wait
        if wait.blocks? && !wait.queued
          wait.events = :unblocked
          enqueue(wait)
        end
        wait = wait.outer
      end
      wake_poll
      nil
    end

    def end_wait(wait)
      wait.done = true
      @timers.remove(wait.timer) if wait.timer
      @descriptors.remove(wait) if wait.masks
      wait.late&.each { |delivery| enqueue(delivery) }
      wait.outer ? @waits[wait.fiber] = wait.outer : @waits.delete(wait.fiber)
      # An entry that is still queued, or the caller of a new fiber, must keep no fiber alive.
      wait.fiber = wait.outer = nil
    end
  end
end

# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # Raises exceptions in waiting fibers: for timeouts whose block has not ended in time, for {#fiber_interrupt}, and for
    # {#cancel}.

    # The methods of IO that close a descriptor, and the hooks in which these methods wait.
    CLOSING = %w[close close_read close_write reopen].freeze
    HOOKS_OF_CLOSE = %w[block kernel_sleep].freeze
    private_constant :CLOSING, :HOOKS_OF_CLOSE

    # The hook for Timeout.timeout: runs the block, and when the time limit elapses, raises where the block waits, even inside an
    # Enumerator. It never raises after the block has ended.
    #
    # @param duration [Numeric, nil] seconds; nil: no limit; a negative number elapses at once
    # @param exception [Class, Exception]
    # @param message [String, nil] nil: the exception is an instance, and is raised as it is
    # @yieldparam duration [Numeric]
    # @return what the block returns
    # @raise [TypeError] duration is not a duration
    def timeout_after(duration, exception, message = nil, &block)
      seconds = Durations.added_seconds(duration)
      return ForkedChildHooks.timeout_after(seconds, exception, message, &block) unless may_park?
      return yield(duration) unless seconds

      run_interruptible(seconds, message ? [exception, message] : [exception]) { yield(duration) }
    end

    # Like {#timeout_after}, but {#interrupt} can raise the exception earlier. In a forked child nothing is raised.
    #
    # @param limit [Numeric, nil] seconds; nil: no limit
    # @param exception [Class, Exception]
    # @yieldparam interruption to pass to {#interrupt}
    # @return what the block returns
    # @raise [TypeError] limit is not a duration
    # @raise [ThreadError] a trap handler calls this in the middle of a wait
    # @api private
    def interruptible(limit, exception, &block)
      seconds = Durations.added_seconds(limit)
      raise ThreadError, "can't be called from trap context" if enter && interrupts?

      enter ? run_interruptible(seconds, [exception], &block) : yield(nil)
    end

    # Raises in the block of {#interruptible} where it waits. Raises at most once, and never after the block has ended.
    #
    # @return [nil]
    # @raise [ThreadError] called on another thread
    # @api private
    def interrupt(interruption)
      enqueue(interruption) if enter && !interruption.done
      nil
    end

    # Sets a new time limit for an {#interruptible}, unless it has expired.
    #
    # @param seconds [Numeric, nil] from now on; nil: no limit
    # @return [nil]
    # @raise [ThreadError] called on another thread
    # @api private
    def limit(interruption, seconds)
      return unless enter && !interruption.queued && !interruption.done

      @timers.remove(interruption.timer) if interruption.timer
      interruption.timer = (@timers.add(seconds, interruption) if seconds)
      nil
    end

    private

    def run_interruptible(seconds, arguments)
      delivery = Delivery.new(Fiber.current, arguments)
      delivery.timer = @timers.add(seconds, delivery) if seconds
      value = yield(delivery)
      raise(*arguments) if delivery.outlasted && !delivery.done # no wait after the close has raised it

      value
    ensure
      delivery&.done = true
      @timers.remove(delivery.timer) if delivery&.timer
    end

    # The fiber to raise in: the timeout's fiber if it waits itself. Otherwise it has resumed another fiber, or belongs to a
    # suspended Enumerator; the exception is then raised in its owner, and Ruby passes it on to the fiber that waits.
    def receiver(delivery)
      fiber = delivery.fiber
      @waits.key?(fiber) || delivery.arguments.nil? ? fiber : @owners[fiber] || fiber
    end

    # Raises an exception in a fiber. The delivery is the first entry of the ready queue.
    def deliver(delivery)
      fiber = receiver(delivery)
      wait = @waits[fiber]
      if wait&.queued && wait.blocks? && !delivery.deferred
        # The wake-up comes first, because it may have handed over a lock.
        delivery.deferred = true
        @ready.push(delivery)
        @ready.shift
      elsif wait && (delivery.outlasted = closes_io?(fiber))
        (wait.late ||= []) << delivery # it is queued again when this wait has ended
        @ready.shift
        delivery.queued = false
      elsif wait
        wait.error ||= delivery.arguments || :cancel
        @ready.unshift(wait)
        wait.queued = delivery.done = true
      else
        # The fiber does not wait itself: it has resumed one that waits, or it is a stand-in for a fiber. Ruby finds the waiting
        # fiber.
        delivery.done = true
        switch_to_new(Fiber.new { raise_in(fiber, delivery.arguments) }) if fiber.alive?
      end
    end

    # Whether the fiber closes an IO and waits for other threads that use it. An exception must not end that wait. Up to Ruby 3.4,
    # the VM would continue to use a list of these threads that is on the stack of the closing method. In 4.0, the fiber would
    # keep the mutex that the threads need in order to leave. The frames of the fiber tell which method waits.
    def closes_io?(fiber)
      return false unless Fiber === fiber

      frames = fiber.backtrace_locations || []
      hook = frames.index { |frame| HOOKS_OF_CLOSE.include?(frame.base_label) }
      caller = frames[hook + 1] if hook
      !caller.nil? && CLOSING.include?(caller.base_label)
    end

    # Runs in a separate fiber, which need not get control back: it is not queued if it stays suspended.
    def raise_in(fiber, arguments)
      @running = nil
      return fiber.raise(*arguments) if arguments

      @killed[fiber] = true # the kill unwinds it from where it resumed another fiber
      fiber.kill
    end
  end
end

# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # Exceptions that are raised where a fiber waits: those of timeouts, which are raised unless their block ends first, and those of
    # {#fiber_interrupt} and {#cancel}.

    # The methods of IO that close a descriptor, and the hooks in which they wait.
    CLOSING = %w[close close_read close_write reopen].freeze
    HOOKS_OF_CLOSE = %w[block kernel_sleep].freeze
    private_constant :CLOSING, :HOOKS_OF_CLOSE

    # The hook for Timeout.timeout: runs the block, and raises where it waits when the time is over, also inside an
    # Enumerator. It never raises once the block has been left.
    #
    # @param duration [Numeric, nil] seconds; nil: no limit; a negative number is over at once
    # @param exception [Class, Exception]
    # @param message [String, nil] nil: an instance is raised as it is
    # @yieldparam duration [Numeric]
    # @return what the block returns
    # @raise [TypeError] no duration
    def timeout_after(duration, exception, message = nil, &block)
      seconds = Durations.added_seconds(duration)
      return ForkedChildHooks.timeout_after(seconds, exception, message, &block) unless may_park?
      return yield(duration) unless seconds

      run_interruptible(seconds, message ? [exception, message] : [exception]) { yield(duration) }
    end

    # As {#timeout_after}, but {#interrupt} may raise the exception before the time is over. In a forked child nothing is raised.
    #
    # @param limit [Numeric, nil] seconds; nil: no limit
    # @param exception [Class, Exception]
    # @yieldparam interruption what {#interrupt} takes
    # @return what the block returns
    # @raise [TypeError] no duration
    # @raise [ThreadError] a trap handler calls it in the middle of a wait
    # @api private
    def interruptible(limit, exception, &block)
      seconds = Durations.added_seconds(limit)
      raise ThreadError, "can't be called from trap context" if enter && interrupts?

      enter ? run_interruptible(seconds, [exception], &block) : yield(nil)
    end

    # Raises in the block of {#interruptible} where that waits; once, and not after the block.
    #
    # @return [nil]
    # @raise [ThreadError] called by another thread
    # @api private
    def interrupt(interruption)
      enqueue(interruption) if enter && !interruption.done
      nil
    end

    # Sets the time of an {#interruptible} anew, unless it is over.
    #
    # @param seconds [Numeric, nil] from now on; nil: no limit
    # @return [nil]
    # @raise [ThreadError] called by another thread
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
      raise(*arguments) if delivery.outlasted && !delivery.done # no wait has followed the close

      value
    ensure
      delivery&.done = true
      @timers.remove(delivery.timer) if delivery&.timer
    end

    # The fiber to raise in. If the fiber of the timeout does not wait itself, because it has resumed another fiber, or because it
    # is a suspended Enumerator's, that is its owner: Ruby passes the exception on to the fiber that waits.
    def receiver(delivery)
      fiber = delivery.fiber
      @waits.key?(fiber) || delivery.arguments.nil? ? fiber : @owners[fiber] || fiber
    end

    # Gives an exception to a fiber. It is the first entry of the ready queue.
    def deliver(delivery)
      fiber = receiver(delivery)
      wait = @waits[fiber]
      if wait&.queued && wait.blocks? && !delivery.deferred
        # The wake-up may have handed over a lock, so it takes effect first.
        delivery.deferred = true
        @ready.push(delivery)
        @ready.shift
      elsif wait && (delivery.outlasted = closes_io?(fiber))
        (wait.late ||= []) << delivery # it comes again when this wait is over
        @ready.shift
        delivery.queued = false
      elsif wait
        wait.error ||= delivery.arguments || :cancel
        @ready.unshift(wait)
        wait.queued = delivery.done = true
      else
        # It does not wait itself. It has resumed a fiber that does, or it is not a fiber but a stand-in. Ruby finds the way.
        delivery.done = true
        switch_to_new(Fiber.new { raise_in(fiber, delivery.arguments) }) if fiber.alive?
      end
    end

    # Whether a fiber waits for the other threads that use an IO which it closes. An exception must
    # not end that wait. Up to Ruby 3.4 the VM keeps the threads in a list on the stack of the method that closes, and would go
    # on to use it. In 4.0 the fiber would keep the mutex that they need to leave. The frames of the fiber tell which method waits.
    def closes_io?(fiber)
      return false unless Fiber === fiber

      frames = fiber.backtrace_locations || []
      hook = frames.index { |frame| HOOKS_OF_CLOSE.include?(frame.base_label) }
      caller = frames[hook + 1] if hook
      !caller.nil? && CLOSING.include?(caller.base_label)
    end

    # In a fiber of its own, which need not give control back: it is not queued if it stays suspended.
    def raise_in(fiber, arguments)
      @running = nil
      return fiber.raise(*arguments) if arguments

      @killed[fiber] = true # the kill unwinds it from where it has resumed another fiber
      fiber.kill
    end
  end
end

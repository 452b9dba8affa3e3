# frozen_string_literal: true

require_relative "../durations"
require_relative "../hooks_in_forked_child"

module Reactor
  class PortableScheduler
    # Exceptions that are raised where a block waits, unless the block ends first.
    module Timeouts
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
        return ForkedChildHooks.timeout_after(seconds, exception, message, &block) unless enter
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
      # @api private
      def interruptible(limit, exception, &block)
        seconds = Durations.added_seconds(limit)
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

      private

      def run_interruptible(seconds, arguments)
        @limits += 1
        note_owner
        fiber = Fiber.current
        delivery = delivery_to(fiber, arguments)
        if seconds
          timer = @timers.add(from_now(seconds), delivery)
          @collectable[timer] = true unless delivery.fiber
        end
        value = yield(delivery)
        raise(*arguments) if delivery.outlasted && !delivery.done # no wait has followed the close

        value
      ensure
        delivery&.done = true
        remove_timeout(timer) if timer
        @limits -= 1
      end

      # A fiber that the scheduler did not make may be an Enumerator's that is suspended between two values, and that the program
      # drops. So the delivery does not keep it.
      def delivery_to(fiber, arguments)
        delivery = Delivery.new(nil, arguments)
        delivery.outer = @waits[fiber]
        delivery.in_handler = in_trap_handler?
        if @live.key?(fiber)
          delivery.fiber = fiber
        else
          @limited[delivery] = fiber
          delivery.outer_of_owner = @waits[@owners[fiber]]
        end
        delivery
      end

      def remove_timeout(timer)
        @timers.remove(timer)
        @collectable.delete(timer)
      end

      # Removes the timeouts of fibers that have been collected, if there was a garbage collection since the last time.
      def remove_timeouts_of_collected
        return if @collectable.empty? || @collections == GC.count

        @collections = GC.count
        @collectable.keys.each do |timer|
          next if @limited.key?(timer.entry)

          remove_timeout(timer)
          @limits -= 1
        end
      end
    end
  end
end

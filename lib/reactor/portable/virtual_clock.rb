# frozen_string_literal: true

require_relative "../clock"
require_relative "../durations"

module Reactor
  class PortableScheduler
    # The clock of sleeps and timeouts, which {Testing.virtual_time} may stop: it then jumps to the next timer when no fiber
    # can run.
    module VirtualClock
      # Stops the clock.
      #
      # @param settle [Numeric] real seconds to wait before a jump for an event that is not a timer's
      # @raise [RuntimeError] it was stopped before
      # @api private
      def virtual_time(settle)
        raise "this scheduler is closed, or its time is already virtual" if @virtual_now || closed?

        @settle = Durations.seconds(settle)
        @holds = 0
        @virtual_now = @virtual_start = Clock.now.round(9)
      end

      # @return [Integer, nil] nanoseconds of virtual time since it began
      # @api private
      def virtual_elapsed = @virtual_now && ((@virtual_now - @virtual_start) * 1e9).round

      # Any thread and any trap handler may call this.
      #
      # @param begins [Boolean] from true to false the clock does not jump
      # @api private
      def virtual_hold(begins)
        @holds = begins ? @holds + 1 : [@holds - 1, 0].max
        wake_poll unless begins # IO.select sleeps on after a trap handler
      end

      private

      # @return [Float] seconds on this clock. Virtual time is rounded to the nanosecond, so that sums that are equal on paper
      #   are equal here.
      def from_now(seconds) = @virtual_now ? (@virtual_now + seconds).round(9) : Clock.now + seconds

      def may_advance? = !@virtual_now.nil? && @holds.zero? && @timers.size.positive? && @timers.deadline.finite?

      def advance_to_next_timer = @virtual_now = [@virtual_now, @timers.deadline].max
    end
    private_constant :VirtualClock
  end
end

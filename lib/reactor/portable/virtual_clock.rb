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
        @virtual_now = 0r
      end

      # @return [Integer, nil] nanoseconds of virtual time since it began
      # @api private
      def virtual_elapsed = @virtual_now && (@virtual_now * 1_000_000_000).to_i

      # Any thread and any trap handler may call this.
      #
      # @param begins [Boolean] from true to false the clock does not jump
      # @api private
      def virtual_hold(begins)
        @holds = begins ? @holds + 1 : [@holds - 1, 0].max
        wake_poll unless begins # IO.select sleeps on after a trap handler
      end

      private

      # @return [Float, Rational] seconds on this clock: monotonic time, or virtual time since it began. Virtual time is exact to the
      #   nanosecond, so that sums that are equal on paper are equal here. Floats are not, on a machine that has been up for months.
      def from_now(seconds)
        return Clock.now + seconds unless @virtual_now

        @virtual_now + (seconds.finite? ? seconds.to_r.round(9) : seconds)
      end

      def may_advance? = !@virtual_now.nil? && @holds.zero? && @timers.size.positive? && @timers.deadline.finite?

      def advance_to_next_timer = @virtual_now = [@virtual_now, @timers.deadline].max
    end
    private_constant :VirtualClock
  end
end

# frozen_string_literal: true

module Reactor
  # The monotonic clock, and Ruby's rule for what counts as a duration.
  #
  # @api private
  module Clock
    class << self
      # @return [Float] the monotonic clock, in seconds
      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # Converts what Kernel#sleep accepts to a number.
      #
      # @param duration [Numeric, #divmod, nil] seconds
      # @return [Integer, Float, nil] seconds, at least 0; nil: without a limit
      # @raise [TypeError] if it is not a duration
      # @raise [ArgumentError] if it is negative
      # @raise [RangeError] if it is NaN or at least 2**63
      def seconds(duration)
        return if duration.nil?
        raise TypeError, "can't convert #{duration.class} into time interval" unless duration.respond_to?(:divmod)

        duration = duration.to_f unless duration.is_a?(Integer)
        raise ArgumentError, "time interval must not be negative" if duration.negative?
        raise RangeError, "#{duration} out of Time range" unless duration < 2**63

        duration
      end

      # @param deadline [Float, nil] a reading of the clock
      # @param time [Float] the clock now
      # @return [Float, nil] seconds until the deadline, at least 0; nil if there is no deadline
      def left(deadline, time) = deadline && [deadline - time, 0].max
    end
  end
end

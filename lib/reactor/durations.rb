# frozen_string_literal: true

module Reactor
  # Ruby's rules for what counts as a duration.
  #
  # @api private
  module Durations
    # 100 years in seconds: longer than a process runs, and short enough for IO.select.
    FAR = 100 * 365 * 24 * 60 * 60

    class << self
      # Converts a duration that Kernel#sleep, IO.select and IO#wait accept; raises their errors.
      #
      # @param duration [Numeric, #divmod, nil] seconds
      # @return [Integer, Float, nil] seconds, from 0 to {FAR}; nil: no limit
      # @raise [TypeError] duration is not a duration
      # @raise [ArgumentError] duration is negative
      # @raise [RangeError] duration is NaN or at least 2**63
      def seconds(duration) = duration.nil? ? nil : [Internal.seconds(duration), FAR].min

      # Converts a duration that Timeout.timeout accepts. (Ruby adds such a duration to the time as a Float.)
      #
      # @param duration [Numeric, #coerce, nil] seconds; a negative number counts as 0
      # @return [Float, nil] seconds, at least 0; Float::INFINITY for NaN and for numbers beyond {FAR}; nil: no limit
      # @raise [TypeError] duration is not a number
      def added_seconds(duration)
        return if duration.nil?

        seconds = Float(0.0 + duration)
        return 0.0 if seconds <= 0

        seconds <= FAR ? seconds : Float::INFINITY
      end
    end
  end
end

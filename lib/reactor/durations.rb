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
      def seconds(duration)
        return if duration.nil?

        seconds = Float === duration ? duration : exact_seconds(duration)
        raise ArgumentError, "time interval must not be negative" if seconds.negative?
        raise RangeError, format("%f out of Time range", seconds) unless seconds.is_a?(Integer) || seconds < 2**63

        [seconds, FAR].min
      end

      # Converts a duration that Timeout.timeout accepts. (Ruby adds such a duration to the time as a Float.)
      #
      # @param duration [Numeric, #coerce, nil] seconds; a negative number counts as 0
      # @return [Float, nil] seconds, at least 0; Float::INFINITY for NaN and for numbers beyond {FAR}; nil: no limit
      # @raise [TypeError] duration is not a number
      def added_seconds(duration) = duration.nil? ? nil : lenient(Float(0.0 + duration))

      # Like {added_seconds}, for Queue#pop and Thread#join, which also accept objects that respond only to to_f.
      #
      # @param duration [#to_f, nil] seconds
      def lenient_seconds(duration)
        return added_seconds(duration) if duration.nil? || String === duration # Kernel#Float would parse a String

        lenient(Float(duration))
      end

      private

      def lenient(seconds)
        return 0.0 if seconds <= 0

        seconds <= FAR ? seconds : Float::INFINITY
      end

      def exact_seconds(duration)
        return long(duration) if Integer === duration

        whole, fraction = Array.try_convert(duration.divmod(1)) if duration.respond_to?(:divmod)
        raise TypeError, "can't convert #{duration.class} into time interval" unless whole

        long(whole) + long(fraction * 1_000_000_000) / 1e9
      end

      # Converts a number that C methods accept as a `long`. Array#rotate is such a method: called here, it raises their errors.
      def long(number)
        return number if Integer === number && number.bit_length < 64

        [].rotate(number) && Integer(number)
      end
    end
  end
end

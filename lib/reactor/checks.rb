# frozen_string_literal: true

module Reactor
  # Checks option values, and names the option in the error. What counts as a duration is Ruby's rule.
  #
  # @api private
  module Checks
    # 100 years in seconds: longer than a process runs, and short enough for IO.select.
    FAR = 100 * 365 * 24 * 60 * 60

    class << self
      # Converts a duration that Kernel#sleep, IO.select and IO#wait accept; raises their errors.
      #
      # @param name [Symbol, nil] nil: the error names no option
      # @param value [Numeric, #divmod, nil] seconds
      # @return [Integer, Float, nil] seconds, from 0 to {FAR}; nil: no limit
      # @raise [TypeError] value is not a duration
      # @raise [ArgumentError] value is negative
      # @raise [RangeError] value is NaN or at least 2**63
      def seconds(name, value)
        value.nil? ? nil : [Internal.seconds(value), FAR].min
      rescue TypeError, ArgumentError, RangeError => error
        raise unless name

        raise error.class, "#{name}: #{error.message}"
      end

      # Converts a duration that Timeout.timeout accepts. (Ruby adds such a duration to the time as a Float.)
      #
      # @param value [Numeric, #coerce, nil] seconds; a negative number counts as 0
      # @return [Float, nil] seconds, at least 0; Float::INFINITY for numbers beyond {FAR}; nil: no limit
      # @raise [TypeError]
      # @raise [RangeError] value is NaN, with which Timeout.timeout waits without a limit
      def limit(name, value)
        return if value.nil?

        seconds = added(name, value)
        raise RangeError, "#{name} is NaN" if seconds.nan?
        return 0.0 if seconds <= 0

        seconds <= FAR ? seconds : Float::INFINITY
      end

      # @return [Integer] the value
      # @raise [TypeError] value is not an Integer
      # @raise [ArgumentError] value is less than `least`
      def count(name, value, least = 1)
        raise TypeError, "#{name} must be an Integer, not #{value.class}" unless Integer === value
        raise ArgumentError, "#{name} must be at least #{least}, not #{value}" if value < least

        value
      end

      private

      def added(name, value)
        Float(0.0 + value)
      rescue TypeError, RangeError # of a Complex
        raise TypeError, "#{name} must be a number of seconds or nil, not #{value.class}"
      end
    end
  end
end

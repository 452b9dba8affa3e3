# frozen_string_literal: true

require_relative "durations"

module Reactor
  # Checks option values, and names the option in the error.
  #
  # @api private
  module Options
    class << self
      # @param value what {Durations.seconds} takes
      # @return [Integer, Float, nil] as Durations.seconds
      # @raise as Durations.seconds
      def seconds(name, value)
        Durations.seconds(value)
      rescue TypeError, ArgumentError, RangeError => error
        raise error.class, "#{name}: #{error.message}"
      end

      # @param value [Integer, #to_int]
      # @return [Integer] at least 1
      # @raise [TypeError, ArgumentError]
      def count(name, value)
        count = Integer.try_convert(value) or raise TypeError, "#{name} must be an Integer, not #{value.class}"
        raise ArgumentError, "#{name} must be at least 1, not #{count}" unless count.positive?

        count
      end

      # @param value [Numeric, nil] seconds; negative values count as 0
      # @return [Float, nil] nil: no limit
      # @raise [TypeError]
      def limit(name, value)
        Durations.added_seconds(value)
      rescue TypeError, RangeError # of a Complex
        raise TypeError, "#{name} must be a number of seconds or nil, not #{value.class}"
      end
    end
  end
end

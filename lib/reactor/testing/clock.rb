# frozen_string_literal: true

require_relative "../scheduler"

module Reactor
  module Testing
    # The clock of {Testing.virtual_time}.
    class Clock
      # @api private
      attr_reader :scheduler

      # @param at [Time, Numeric, nil] initial reading of all clocks; nil: real time
      # @api private
      def initialize(scheduler, settle, at = nil)
        @scheduler = scheduler
        @real = CLOCKS.to_h do |id|
          start = at ? (at.to_r * 1_000_000_000).to_i : Process.clock_gettime(id, :nanosecond)
          [id, start - start % STEP]
        end
        scheduler.virtual_time(settle)
      end

      # @return [Float] virtual seconds since it started
      def elapsed = @scheduler.virtual_elapsed / 1e9

      # @return [Integer, nil] the reading of a clock in nanoseconds; nil if the clock stays real
      # @api private
      def nanoseconds(id)
        start = @real[id]
        start && start + @scheduler.virtual_elapsed
      end
    end

    # Clocks that show virtual time. MinGW defines more clocks than can be read.
    CLOCKS = %i[
      CLOCK_REALTIME CLOCK_REALTIME_COARSE CLOCK_TAI CLOCK_MONOTONIC CLOCK_MONOTONIC_COARSE CLOCK_MONOTONIC_RAW CLOCK_BOOTTIME
    ].filter_map { |name| Process.const_get(name) if Process.const_defined?(name) }.select do |id|
      Process.clock_gettime(id)
    rescue Errno::EINVAL
      false
    end.freeze
    private_constant :CLOCKS

    # Nanoseconds. Clocks start at a multiple of 1/512 second, so that sums with whole seconds are exact as Floats.
    STEP = 1_953_125
    private_constant :STEP

    # Prepended to the singleton class of a scheduler with virtual time, which calls these methods.
    module Hooks
      private

      # @return [Boolean] whether anything but a timer could wake a fiber
      def wakeable_from_outside?
        hooks = wait_hooks
        return true if hooks.include?(:io)

        hooks.include?(:block) && !Deadlock.other_threads_idle?
      end

      def now = virtual_elapsed / 1e9
    end
    private_constant :Hooks
  end
end

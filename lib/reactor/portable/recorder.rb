# frozen_string_literal: true

require_relative "../clock"
require_relative "../histogram"

module Reactor
  class PortableScheduler
    # What has happened: counters and times.
    class Recorder
      # @return [Hash{Symbol => Integer}]
      attr_reader :counts

      # @return [Histogram] of timers
      attr_reader :lateness

      def initialize
        @counts = { fibers: 0, parks: 0, switches: 0, turns: 0, sleeps: 0, wakeups: 0 }
        @turn_times = Histogram.new
        @lateness = Histogram.new
        @opened_at = @turn_began = Clock.real
        @asleep = 0.0       # seconds asleep so far
        @asleep_since = nil # while it is asleep
        @gc_asleep = 0      # nanoseconds of garbage collection meanwhile
        @keeps_births = false
      end

      # @return [Hash{Symbol => Integer}]
      def times
        now = Clock.real
        asleep = @asleep + (@asleep_since&.then { |since| now - since } || 0)
        { awake_ns: ((now - @opened_at - asleep) * 1e9).round, asleep_ns: (asleep * 1e9).round, gc_asleep_ns: @gc_asleep }
      end

      # @return [Hash{Symbol => Array(Array<Integer>, Integer, Integer)}] as {PortableScheduler#histogram_rows}
      def histogram_rows
        { turn: @turn_times, lateness: @lateness }.transform_values do |histogram|
          [histogram.counts.dup, (histogram.sum * 1e9).round, ((histogram.max || 0) * 1e9).round]
        end
      end

      # A poll begins: a turn is over.
      def end_turn
        now = Clock.real
        @counts[:turns] += 1
        @turn_times.record(now - @turn_began)
        @turn_began = now
      end

      def begin_sleep
        @counts[:sleeps] += 1
        @gc_before = GC.total_time
        @asleep_since = @turn_began
      end

      def end_sleep
        return unless @asleep_since # the thread was killed before

        @turn_began = Clock.real
        @asleep += @turn_began - @asleep_since
        @asleep_since = nil
        @gc_asleep += GC.total_time - @gc_before
      end

      # From now on each fiber keeps the place of its block, for {FiberName}.
      def keep_births = @keeps_births = true

      # The block of a fiber that was just made stands at this place.
      #
      # @param place [Array(String, Integer), nil] path and line
      def birth(fiber, place)
        @counts[:fibers] += 1
        fiber.instance_variable_set(:@__reactor_birth, place) if @keeps_births
      end
    end
    private_constant :Recorder
  end
end

# frozen_string_literal: true

require_relative "../clock"
require_relative "../histogram"
require_relative "waits"

module Reactor
  class PortableScheduler
    # What has happened: counters, times, and the entries of a trace.
    class Recorder
      # The entries of a trace, the fibers made and where, and how many entries were beyond the limit.
      Trace = Struct.new(:start, :limit, :list, :births, :lost)
      private_constant :Trace

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
        return unless @asleep_since # a poll in a trap handler has ended it

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
        @trace&.births&.push([fiber.object_id, place&.join(":")])
      end

      # @param limit [Integer] entries at most
      def start_trace(limit)
        raise "this scheduler is being traced already" if @trace

        @trace = Trace.new(Clock.now, limit, [], [], 0)
      end

      # @return [Array(Integer, Array, Array)] as {PortableScheduler#trace_stop}
      def stop_trace
        trace, @trace = @trace, nil
        [trace.lost, trace.births, trace.list]
      end

      # Records an event of a fiber or a watcher, if a trace is written.
      #
      # @param wait [Wait, Watch, nil] with what the fiber or the watcher waits for
      def event(what, object = nil, wait = nil, events = nil)
        return unless @trace
        return @trace.lost += 1 if @trace.list.size >= @trace.limit

        io, wanted = wait&.target
        at = ((Clock.now - @trace.start) * 1e9).round
        @trace.list << [what, at, object.object_id, wait.is_a?(Wait) ? wait.hook : :io, io&.inspect, events || wanted || 0]
      end
    end
    private_constant :Recorder
  end
end

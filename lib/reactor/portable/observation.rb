# frozen_string_literal: true

require_relative "../clock"
require_relative "../histogram"

module Reactor
  class PortableScheduler
    # Methods for {Inspection}, {StallDetector} and {TraceWriter}. Any thread may call them.
    module Observation
      # The records of a trace: the entries, the fibers made and where, and the entries beyond the limit.
      Trace = Struct.new(:start, :limit, :list, :births, :lost)
      private_constant :Trace

      # @return [Hash{Symbol => Integer}] counters and gauges; see {Inspection#stats}
      # @api private
      def stats
        gauges = { live: live, parked: @waits.size, ready: @ready.size, watchers: watchers.size, timers: @timers.size }
        @counts.merge(gauges, waiting_counts, time_counts)
      end

      # @param limit [Integer, nil] how many fibers at most: those that have waited longest, the longest first; nil: all
      # @return [Array<Array(Fiber, Integer, Symbol, Symbol, IO, Integer, Boolean, Float)>] every fiber it knows, as
      #   {FiberStatus::Row} names it
      # @api private
      def fiber_rows(limit = nil)
        now = Clock.now
        fibers = limit ? @waits.min_by(limit) { |_, wait| wait.parked_at || now }.map(&:first) : @live.keys | @waits.keys
        fibers.map do |fiber|
          wait = @waits[fiber]
          next [fiber, fiber.object_id, :running, :other, nil, 0, false, nil] unless wait

          [fiber, fiber.object_id, wait.state, wait.hook, *wait.target, wait.forever?, wait.parked_at && now - wait.parked_at]
        end
      end

      # @return [Hash{Symbol => Array(Array<Integer>, Integer, Integer)}] each histogram: counts, and the sum and the longest in
      #   nanoseconds
      # @api private
      def histogram_rows
        { turn: @turn_times, lateness: @lateness }.transform_values do |histogram|
          [histogram.counts.dup, *[histogram.sum, histogram.max || 0].map { |seconds| (seconds * 1e9).round }]
        end
      end

      # @return [Array<Symbol>] the hooks that fibers wait in, each once. A watcher counts as a fiber that waits for readiness.
      # @api private
      def wait_hooks
        hooks = parked.map(&:hook)
        hooks << :io unless @watches.empty?
        hooks.uniq
      end

      # @return [Integer, nil] a number that changes whenever control changes hands; nil while the thread sleeps in the
      #   kernel, and while there is no fiber that could be held up
      # @api private
      def progress_count
        @counts.values_at(:fibers, :parks, :switches, :turns).sum unless @sleeping || @live.empty?
      end

      # @return [Fiber, nil] the fiber that has control
      # @api private
      def running_fiber = (@running if @running && (@live.key?(@running) || @waits.key?(@running)))

      # From now on each fiber keeps the place of its block, for {FiberName}.
      #
      # @api private
      def keep_births = @keeps_births = true

      # Begins to record a trace.
      #
      # @param limit [Integer] entries at most
      # @raise [RuntimeError] one is being recorded already
      # @api private
      def trace_start(limit)
        raise "this scheduler is being traced already" if @trace

        @trace = Trace.new(Clock.now, limit, [], [], 0)
      end

      # @return [Array(Integer, Array, Array)] how many entries were left out; the fibers made, as key and place; the
      #   entries, as what, nanoseconds, key of the fiber, hook, IO, events
      # @api private
      def trace_stop
        trace, @trace = @trace, nil
        [trace.lost, trace.births, trace.list]
      end

      private

      def begin_observation
        @opened_at = @turn_began = Clock.real
        @asleep = 0.0       # seconds asleep so far
        @asleep_since = nil # while it is asleep
        @gc_asleep = 0      # nanoseconds of garbage collection meanwhile
        @keeps_births = false
        @turn_times = Histogram.new
        @lateness = Histogram.new
      end

      def parked = @waits.values.select { |wait| wait.state == :waiting }

      # @return [Hash{Symbol => Integer}] how many fibers are parked in each hook
      def waiting_counts
        hooks = parked.map(&:hook).tally
        %i[io sleep block other].to_h { |hook| [:"waiting_#{hook}", hooks.fetch(hook, 0)] }
      end

      def time_counts
        now = Clock.real
        since = @asleep_since
        asleep = @asleep + (since ? now - since : 0)
        { awake_ns: now - @opened_at - asleep, asleep_ns: asleep }.transform_values { |seconds| (seconds * 1e9).round }
                                                                  .merge(gc_asleep_ns: @gc_asleep)
      end

      # A poll begins: a turn is over.
      def end_turn
        now = @timers.virtual_now ? Clock.real : @polled_at
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

      # The block of a fiber that was just made stands at this place.
      #
      # @param place [Array(String, Integer), nil] path and line
      def note_birth(fiber, place)
        @counts[:fibers] += 1
        fiber.instance_variable_set(:@__reactor_birth, place) if @keeps_births
        @trace&.births&.push([fiber.object_id, place&.join(":")])
      end

      # Records an event of a fiber or a watcher while a trace is written.
      def trace_event(what, object = nil, wait = nil, events = nil)
        return unless @trace
        return @trace.lost += 1 if @trace.list.size >= @trace.limit

        io, wanted = wait&.target
        at = ((Clock.now - @trace.start) * 1e9).round
        @trace.list << [what, at, object.object_id, wait.is_a?(Wait) ? wait.hook : :io, io&.inspect, events || wanted || 0]
      end

      # A wait for a turn that is not queued for it is {FiberLifecycle#drain}'s, and waits for the end of all other fibers.
      def kind_of_park(wait)
        return :park unless wait.kind == :turn

        wait.queued ? :ready : :drain
      end
    end
    private_constant :Observation
  end
end

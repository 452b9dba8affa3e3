# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # Methods for {Inspection} and {StallDetector}. Any thread may call them.

    # @return [Hash{Symbol => Integer}] counters and gauges; see {Inspection#stats}
    # @api private
    def stats
      gauges = { live: live, parked: @waits.size, ready: @ready.size, watchers: watchers.size, timers: @timers.size }
      @recorder.counts.merge(gauges, waiting_counts, @recorder.times)
    end

    # @param limit [Integer, nil] maximum number of fibers, longest-waiting first; nil: no limit
    # @return [Array<Array(Fiber, Integer, Symbol, Symbol, IO, Integer, Boolean, Float)>] all known fibers, with the attributes of
    #   {FiberStatus::Row}
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

    # @return [Hash{Symbol => Array(Array<Integer>, Integer, Integer)}] for each histogram: counts, sum and maximum, the latter
    #   two in nanoseconds
    # @api private
    def histogram_rows = @recorder.histogram_rows

    # @return [Array<Symbol>] the distinct hooks in which fibers wait. A watcher counts as a fiber that waits for readiness.
    # @api private
    def wait_hooks
      hooks = parked.map(&:hook)
      hooks << :io unless @watches.empty?
      hooks.uniq
    end

    # @return [Integer, nil] a number that changes whenever control changes hands; nil while the thread sleeps in the kernel, or
    #   if there are no fibers
    # @api private
    def progress_count
      @recorder.counts.values_at(:fibers, :parks, :switches, :turns).sum unless @polling || @live.empty?
    end

    # @return [Fiber, nil] the fiber that has control
    # @api private
    def running_fiber = (@running if @running && (@live.key?(@running) || @waits.key?(@running)))

    # @return [Proc, Watcher, nil] what the fiber runs if it was made by {#fiber} or a watcher; nil for any other fiber
    # @api private
    def block_of(fiber) = (@live[fiber] unless forked_child?)

    private

    def parked = @waits.values.select { |wait| wait.state == :waiting }

    # @return [Hash{Symbol => Integer}] the number of fibers parked in each hook
    def waiting_counts
      hooks = parked.map(&:hook).tally
      %i[io sleep block other].to_h { |hook| [:"waiting_#{hook}", hooks.fetch(hook, 0)] }
    end

    # Records counters and times.
    class Recorder
      # @return [Hash{Symbol => Integer}]
      attr_reader :counts

      # @return [Histogram] how late timers were
      attr_reader :lateness

      def initialize
        @counts = { fibers: 0, parks: 0, switches: 0, turns: 0, sleeps: 0, wakeups: 0 }
        @turn_times = Histogram.new
        @lateness = Histogram.new
        @opened_at = @turn_began = Clock.real
        @asleep = 0.0       # seconds asleep so far
        @asleep_since = nil # while it is asleep
        @gc_asleep = 0      # nanoseconds of garbage collection while asleep
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

      # Called when a poll begins, which ends a turn.
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
        return unless @asleep_since # the thread was killed before the sleep

        @turn_began = Clock.real
        @asleep += @turn_began - @asleep_since
        @asleep_since = nil
        @gc_asleep += GC.total_time - @gc_before
      end

      # Called when a fiber has been made.
      def birth = @counts[:fibers] += 1
    end
    private_constant :Recorder
  end
end

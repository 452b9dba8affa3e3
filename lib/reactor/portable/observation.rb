# frozen_string_literal: true

require_relative "../clock"

module Reactor
  class PortableScheduler
    # Methods for {Inspection} and {StallDetector}. Any thread may call them.

    # @return [Hash{Symbol => Integer}] counters and gauges; see {Inspection#stats}
    # @api private
    def stats
      gauges = { live: live, parked: @waits.size, ready: @ready.size, watchers: watchers.size, timers: @timers.size }
      @recorder.counts.merge(gauges, waiting_counts, @recorder.times)
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
    def histogram_rows = @recorder.histogram_rows

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
      @recorder.counts.values_at(:fibers, :parks, :switches, :turns).sum unless @polling || @live.empty?
    end

    # @return [Fiber, nil] the fiber that has control
    # @api private
    def running_fiber = (@running if @running && (@live.key?(@running) || @waits.key?(@running)))

    # From now on each fiber keeps the place of its block, for {FiberName}.
    #
    # @api private
    def keep_births = @recorder.keep_births

    private

    def parked = @waits.values.select { |wait| wait.state == :waiting }

    # @return [Hash{Symbol => Integer}] how many fibers are parked in each hook
    def waiting_counts
      hooks = parked.map(&:hook).tally
      %i[io sleep block other].to_h { |hook| [:"waiting_#{hook}", hooks.fetch(hook, 0)] }
    end
  end
end

# frozen_string_literal: true

require_relative "../histogram"

module Reactor
  Health = Data.define(:stats, :turns, :lateness, :queue)

  # The measurements of a scheduler since it was made or, as a difference, between two readings.
  #
  # Time is real time, even when the scheduler's time is virtual, except that {#lateness} is measured on the clock of sleeps and
  # timeouts.
  #
  # @!attribute [r] stats
  #   @return [Hash{Symbol => Integer}] the counters and gauges of {Inspection#stats}. In a difference, counters cover the time
  #     between the two readings, and gauges are those of the later one.
  # @!attribute [r] turns
  #   @return [Histogram] seconds from each poll of the kernel to the next poll, or to the sleep before that poll. Of turns that
  #     follow one another within a millisecond, only the mean is known.
  # @!attribute [r] lateness
  #   @return [Histogram] how late sleeps, timeouts and other timers ended, in seconds
  # @!attribute [r] queue
  #   @return [Histogram] how long work waited for a thread, in the extension's pool and in the pool of {Offload#offload}, in seconds
  class Health
    # The names of the stats that are gauges.
    GAUGES = %i[
      live parked ready watchers timers waiting_io waiting_sleep waiting_block waiting_other offload_threads pool_threads
      pool_queued pool_running
    ].freeze

    # @param earlier [Health] of the same scheduler
    # @return [Health] the difference between the two readings
    def -(earlier)
      counted = stats.to_h { |name, value| [name, Health::GAUGES.include?(name) ? value : value - earlier.stats.fetch(name, 0)] }
      Health.new(counted, turns - earlier.turns, lateness - earlier.lateness, queue - earlier.queue)
    end

    # @return [Float] seconds
    def seconds = (stats.fetch(:awake_ns, 0) + stats.fetch(:asleep_ns, 0)) / 1e9

    # @return [Float, nil] the share of time in which the loop was not asleep, from 0 to 1; nil if no time has passed
    def utilization = seconds.zero? ? nil : stats[:awake_ns] / 1e9 / seconds

    # @return [Hash{Symbol => Integer}] the number of parked fibers by the hook they wait in: io, sleep, block, other
    def waits = %i[io sleep block other].to_h { |hook| [hook, stats[:"waiting_#{hook}"]] }

    # @return [Hash{Symbol => Object}] for JSON
    def to_h
      { seconds: seconds, utilization: utilization, waits: waits, turns: turns.to_h, lateness: lateness.to_h, queue: queue.to_h, stats: stats }
    end

    # Keeps its last reading, and returns the difference between the new reading and the last one. Readers do not affect one
    # another.
    class Reader
      # @param scheduler [Inspection]
      def initialize(scheduler)
        @scheduler = scheduler
        @last = scheduler.health
      end

      # @return [Health] since the last reading, or since the reader was made
      def read
        now = @scheduler.health
        now - @last
      ensure
        @last = now if now
      end
    end

    # @param scheduler [Inspection]
    # @return [Health] since the scheduler was made
    # @api private
    def self.of(scheduler)
      rows = scheduler.histogram_rows.transform_values do |counts, sum, max|
        Histogram.new(counts.freeze, sum / 1e9, max / 1e9)
      end
      turns, lateness, queue = rows.values_at(:turn, :lateness, :queue).map { |histogram| histogram || Histogram.new }
      new(scheduler.stats, turns, lateness, queue + scheduler.offload_queue_times)
    end
  end
end

# frozen_string_literal: true

module Reactor
  # How often durations of each length occurred. The buckets are log-linear, like those of HdrHistogram: one per microsecond up to
  # 16, then 16 per doubling. A histogram takes 4 kB, and percentiles are at most 1/16 too long.
  #
  # The counts of a scheduler only grow. Each reader subtracts its own earlier reading, so readers do not affect one another.
  class Histogram
    # Base-2 logarithm of the number of buckets per doubling.
    FINENESS = 4
    # Durations of at least this power of 2 in microseconds (19 hours) are counted in the last bucket.
    MAX_BITS = 36
    # Number of buckets.
    BUCKETS = (MAX_BITS - FINENESS + 1) << FINENESS

    class << self
      # @param microseconds [Integer]
      # @return [Integer] index of its bucket
      # @api private
      def bucket(microseconds)
        capped = microseconds.clamp(0, (1 << MAX_BITS) - 1)
        doublings = [capped.bit_length - FINENESS - 1, 0].max
        (doublings << FINENESS) + (capped >> doublings)
      end

      # @param bucket [Integer]
      # @return [Float] the shortest duration in this bucket, in seconds
      # @api private
      def start(bucket)
        doublings = [(bucket >> FINENESS) - 1, 0].max
        ((bucket - (doublings << FINENESS)) << doublings) / 1e6
      end
    end

    # @param counts [Array<Integer>] one per bucket
    # @param sum [Float] seconds
    # @param max [Float] seconds
    # @api private
    def initialize(counts = Array.new(BUCKETS, 0), sum = 0.0, max = 0.0)
      @counts = counts
      @sum = sum
      @max = max
    end

    # @return [Float] the sum of all durations, in seconds
    attr_reader :sum

    # @return [Array<Integer>] one per bucket
    # @api private
    attr_reader :counts

    # Counts a duration.
    #
    # @param seconds [Float]
    # @return [void]
    # @api private
    def record(seconds)
      seconds = 0.0 if seconds.negative?
      @counts[Histogram.bucket((seconds * 1e6).to_i)] += 1
      @sum += seconds
      @max = seconds if seconds > @max
    end

    # @return [Integer] the number of durations
    def count = @count ||= @counts.sum

    # @return [Float, nil] seconds; nil if there are no durations
    def mean = count.zero? ? nil : @sum / count

    # @return [Float, nil] the longest duration in seconds, at most 1/16 too long after a subtraction; nil if there are no
    #   durations
    def max = (last = @counts.rindex(&:positive?)) && [Histogram.start(last + 1), @max].min

    # @param share [Float] 0.5 for the median, 0.99 for the 99th percentile
    # @return [Float, nil] this share of the durations did not exceed so many seconds; nil if there are no durations
    def percentile(share)
      wanted = [(share * count).ceil, 1].max
      seen = 0
      found = @counts.index { |number| (seen += number) >= wanted }
      found && [Histogram.start(found + 1), @max].min
    end

    # @param seconds [Float] the count is exact if this limit, in microseconds, is a power of two
    # @return [Integer] the number of durations below this limit
    def below(seconds) = @counts.first(Histogram.bucket((seconds * 1e6).round)).sum

    # @param earlier [Histogram] an earlier reading
    # @return [Histogram] the durations between the two
    def -(earlier) = Histogram.new(combined(earlier, :-), @sum - earlier.sum, @max)

    # @param other [Histogram]
    # @return [Histogram] the durations of both
    def +(other)
      return self if other.count.zero?

      Histogram.new(combined(other, :+), @sum + other.sum, [@max, other.limit].max)
    end

    # @return [Histogram] a copy that later durations do not change
    # @api private
    def snapshot = Histogram.new(@counts.dup.freeze, @sum, @max)

    # @return [Hash{Symbol => Numeric, nil}] count, sum, mean, p50, p99 and max, in seconds
    def to_h = { count: count, sum: @sum, mean: mean, p50: percentile(0.5), p99: percentile(0.99), max: max }

    # @return [String]
    def inspect
      times = to_h.except(:count, :sum).map { |name, seconds| "#{name} #{seconds ? format("%.6f s", seconds) : "-"}" }
      "#<#{self.class} #{count}: #{times.join(", ")}>"
    end

    protected

    # @return [Float] the longest duration ever recorded, in seconds
    def limit = @max

    private

    # Makes a single array and no object per bucket: reactor-top adds up histograms in each snapshot.
    def combined(other, operation)
      others = other.counts
      @counts.each_with_index.map { |number, bucket| number.public_send(operation, others[bucket]) }
    end
  end
end

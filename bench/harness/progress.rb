# frozen_string_literal: true

module Bench
  # Shows how far the runs are: lines for each workload that is done at a size.
  class Progress
    def initialize(total)
      @total = total
      @done = 0
      @started = clock
    end

    def ran = @done += 1

    def workload(measurements)
      first = measurements.first
      name = first.point ? "#{first.workload.name} N=#{Format.count(first.point)}" : first.workload.name
      failed, ran = measurements.partition(&:failure)
      figures = ran.reject { |measurement| measurement.samples.empty? }.map { |measurement| "#{measurement.target.name} #{Format.figure(Bench.median(measurement.values))}" }
      warn "[#{@done}/#{@total}] #{name} (#{first.workload.unit}): #{figures.join('  ')}"
      failed.each { |measurement| warn "#{name}, #{measurement.target.label}: #{measurement.failure.state}: #{measurement.failure.words}" }
    end

    # How long it all took, in seconds.
    def elapsed = clock - @started

    private

    def clock = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end

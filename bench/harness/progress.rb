# frozen_string_literal: true

module Bench
  # Shows how far the runs are: on a terminal one line that changes, and a line for each workload that is done.
  class Progress
    def initialize(total, out: $stderr)
      @total = total
      @out = out
      @done = 0
      @started = clock
    end

    # Announces a run, and yields to it. A round of nil is the counting of system calls.
    def step(measurement, round)
      say "[#{@done}/#{@total}#{remaining}] #{name(measurement)}: #{measurement.target.label}, #{round ? "round #{round + 1}" : 'system calls'}"
      failure = measurement.failure
      yield
      @done += 1 if round
      complain(measurement) if measurement.failure && !failure
    end

    # A workload at one size is complete.
    def workload(measurements)
      clear
      ran = measurements.reject { |measurement| measurement.samples.empty? }
      figures = ran.map { |measurement| "#{measurement.target.name} #{Format.figure(Bench.median(measurement.values))}" }
      @out.puts "#{name(measurements.first)} (#{measurements.first.workload.unit}): #{figures.join('  ')}"
    end

    # How long it all took, in seconds.
    def elapsed = clock - @started

    private

    def name(measurement) = measurement.point ? "#{measurement.workload.name} N=#{Format.count(measurement.point)}" : measurement.workload.name

    def complain(measurement)
      clear
      @out.puts "#{measurement.failure.state.to_s.upcase}: #{name(measurement)}, #{measurement.target.label}: #{measurement.failure.words}"
    end

    def remaining
      return if @done < 3

      left = (elapsed / @done * (@total - @done)).round
      format(", %<minutes>d:%<seconds>02d left", minutes: left / 60, seconds: left % 60)
    end

    def say(text)
      return unless @out.tty?

      clear
      @out.print text
    end

    def clear = (@out.print "\r\e[K" if @out.tty?)

    def clock = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end

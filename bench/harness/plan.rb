# frozen_string_literal: true

module Bench
  # The runs to make, and making them: workload by workload and size by size. At each size the targets take turns (A B C A B C),
  # round by round.
  class Plan
    # A workload at one size on one target, with its samples, or why there are none.
    Measurement = Struct.new(:workload, :point, :target, :samples, :failure, :refusal, :calls, keyword_init: true) do
      # The figure the workload is about.
      def values = samples.map { |sample| Plan.value(workload, sample) }
    end

    # The compared figure of a sample: what the workload names or works out, or else operations a second.
    def self.value(workload, sample)
      return workload.value.call(sample) if workload.value.is_a?(Proc)

      sample.fetch(workload.value) { workload.value == :rate ? sample[:operations] / sample[:seconds] : raise(KeyError, "no #{workload.value} in a run of #{workload.name}") }
    end

    TRACED = 3 # how much longer a run may take if its calls are counted

    attr_reader :measurements

    def initialize(workloads, targets, options)
      @options = options
      @targets = targets
      @measurements = workloads.flat_map do |workload|
        points(workload).flat_map do |point|
          targets.map { |target| Measurement.new(workload: workload, point: point, target: target, samples: [], refusal: refusal(target, workload, point)) }
        end
      end
    end

    # How many runs there will be.
    def size = groups.sum { |workload, measurements| measurements.count { |measurement| runs?(measurement) } * rounds(workload) }

    # Runs everything.
    #
    # @param progress [Progress]
    def run(progress)
      groups.each do |workload, measurements|
        measurements.each { |measurement| skip_after_hang(measurement) }
        rounds(workload).times do
          measurements.each { |measurement| sample(measurement, progress) if runs?(measurement) }
        end
        measurements.each { |measurement| count(measurement) if counts?(measurement) }
        progress.workload(measurements)
      end
    end

    private

    # A measurement that hung at a smaller size is not run again.
    def skip_after_hang(measurement)
      earlier = @measurements.find { |other| other.workload == measurement.workload && other.target == measurement.target && other.failure&.state == :hang }
      measurement.failure ||= Session::Failure.new(:hang, "not tried: it hung at N = #{Format.size(earlier.point)}") if earlier && earlier != measurement
    end

    # Measurements that take turns: those of one workload at one size.
    def groups = measurements.group_by { |measurement| [measurement.workload, measurement.point] }.map { |(workload, _), group| [workload, group] }

    def refusal(target, workload, point)
      return "nothing here can count system calls (perf, strace)" if workload.value == :calls && !Calls.available?

      target.refusal(workload, point)
    end

    def points(workload)
      within = workload.points.select { |point| point.nil? || workload.axis == "bytes per answer" || point <= @options.most }
      within.empty? ? [workload.points.min] : within
    end

    def rounds(workload) = [workload.rounds || @options.rounds, @options.rounds].min

    def runs?(measurement) = !measurement.refusal && !measurement.failure && measurement.workload.value != :calls

    def counts?(measurement) = !measurement.refusal && !measurement.failure && (measurement.workload.value == :calls || (@options.calls && measurement.workload.counted))

    def operations(workload) = workload.operations_at(@options.scale)

    def sample(measurement, progress)
      progress.ran
      take(measurement, session([], measurement, operations(measurement.workload))) { |result| measurement.samples << result }
    end

    # Counting slows a run down much: it makes fewer operations.
    def count(measurement)
      fewer = [(operations(measurement.workload) * (measurement.workload.value == :calls ? 1 : 0.05)).round, measurement.workload.least].max
      result = Calls.count(fewer) { |wrapper, size| session(wrapper, measurement, size) }
      take(measurement, result) do |counted|
        measurement.calls = counted
        measurement.samples << counted.slice(:calls) if measurement.workload.value == :calls
      end
    end

    def take(measurement, result)
      if result.is_a?(Session::Failure)
        measurement.failure = result
      else
        yield result
        measurement.values # a result without its figure is none
      end
    end

    def session(wrapper, measurement, operations)
      pin = measurement.workload.pinned && @options.core ? ["taskset", "-c", @options.core] : []
      command = [*pin, *wrapper, *measurement.target.command(measurement.workload, operations, measurement.point, @options.ruby)]
      limit = (@options.limit * (wrapper.empty? ? 1 : TRACED)) + (measurement.workload.seconds * 2)
      distribution(Session.new(command, limit: limit, environment: measurement.target.environment.to_h).result)
    end

    # The baseline reports its latencies as they are; the Ruby side has summed them up.
    def distribution(result)
      return result unless result.is_a?(Hash) && (late = result.delete(:latencies))

      result.merge(Bench.latencies(late))
    end
  end
end

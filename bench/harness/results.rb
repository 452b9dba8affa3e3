# frozen_string_literal: true

require "etc"
require "json"
require "shellwords"
require "time"

module Bench
  # What was measured, as plain data: the content of bench.json, which the tables and the chart are made from.
  #
  # :about says where and how it was measured, :targets on what, and :rows which workloads. A row has :points, and a point has
  # :cells by target name. A cell has :state (ok, hang, failed, left_out). If it is ok it has :samples as reported; :median, :low,
  # :high and :variation of the workload's figure; medians of what an operation used: :cpu_us, :switches, :calls; and
  # :gc, the part of the time that went into collections.
  class Results
    class << self
      def of(plan, options, elapsed)
        new({ about: Machine.about(options, elapsed), targets: targets(plan),
              rows: plan.measurements.group_by(&:workload).map { |workload, measurements| row(workload, measurements) } })
      end

      # @raise [ArgumentError] if the file holds something else
      def load(path)
        data = JSON.parse(File.read(path), symbolize_names: true)
        raise ArgumentError, "#{path} is not a bench.json" unless data.is_a?(Hash) && data.key?(:rows) && data.key?(:targets)

        new(data)
      rescue SystemCallError, JSON::ParserError => error
        raise ArgumentError, "#{path} cannot be read: #{error.message.lines.first&.chomp}"
      end

      private

      def targets(plan)
        plan.measurements.group_by(&:target).map do |target, measurements|
          library = measurements.flat_map(&:samples).filter_map { |sample| sample[:library] }.first
          target.to_h.slice(:name, :label, :kind).merge(library ? { library: library } : {})
        end
      end

      def row(workload, measurements)
        definition = %i[name title about unit better axis].to_h { |name| [name, workload.public_send(name)] }
        points = measurements.group_by(&:point).map do |point, group|
          { n: point, cells: group.to_h { |measurement| [measurement.target.name.to_sym, cell(measurement)] } }
        end
        definition.merge(counts_calls: workload.value == :calls, points: points)
      end

      def cell(measurement)
        failure = measurement.failure
        samples = measurement.samples
        return { state: "left_out", words: measurement.refusal } if measurement.refusal
        return { state: "left_out", words: "stopped before it ran" } if samples.empty? && !failure
        return { state: failure.state.to_s, words: failure.words } if failure

        figures(measurement.values).merge(used(samples), latencies(samples), calls(measurement.calls),
                                          state: "ok", samples: samples)
      end

      def figures(values)
        { median: Bench.median(values), low: values.min, high: values.max, variation: variation(values) }
      end

      # The standard deviation in parts of the mean; nil of a single value.
      def variation(values)
        return if values.size < 2

        mean = values.sum.fdiv(values.size)
        return 0.0 if mean.zero?

        Math.sqrt(values.sum { |value| (value - mean)**2 } / (values.size - 1)) / mean
      end

      def used(samples)
        { cpu_us: per(samples, :cpu, :operations)&.*(1e6), switches: per(samples, :switches, :operations), gc: per(samples, :gc, :seconds) }
      end

      def per(samples, name, whole)
        values = samples.filter_map { |sample| sample[name]&.fdiv(sample[whole]) }
        Bench.median(values) unless values.empty?
      end

      def latencies(samples)
        return {} unless samples.all? { |sample| sample[:p50] }

        names = %i[p50 p99 p999 max].select { |name| samples.all? { |sample| sample[name] } }
        names.to_h { |name| [name, Bench.median(samples.map { |sample| sample[name] })] }
      end

      def calls(counted) = counted ? { calls: counted[:calls], counted: counted } : {}
    end

    attr_reader :data

    # Through JSON once, so that what is written and what is read again are the same.
    def initialize(data)
      @data = JSON.parse(JSON.generate(data), symbolize_names: true)
    end

    def about = @data[:about]

    def targets = @data[:targets]

    def rows = @data[:rows]

    def json = "#{JSON.pretty_generate(@data)}\n"

    def cell(point, target) = point[:cells].fetch(target[:name].to_sym)
  end

  # Where and how it was measured.
  module Machine
    module_function

    def about(options, elapsed)
      { date: Time.now.utc.iso8601, command: ["bin/bench", *options.given].shelljoin, seconds: elapsed.round, ruby: ruby(options),
        kernel: "#{Etc.uname[:sysname]} #{Etc.uname[:release]}", processor: processor, cores: Etc.nprocessors, load: load_average,
        revision: revision, rounds: options.rounds, scale: options.scale, most: options.most, note: options.note }
    end

    def ruby(options) = IO.popen([*options.ruby, "-e", "print RUBY_DESCRIPTION"], &:read)

    def processor
      File.read("/proc/cpuinfo")[/^model name\s*:\s*(.+)/, 1]
    rescue SystemCallError
      Etc.uname[:machine]
    end

    # Of the last minute. If it is more than the measured programs make, the machine was busy with other work.
    def load_average
      File.read("/proc/loadavg").split.first.to_f
    rescue SystemCallError
      nil
    end

    def revision
      commit = IO.popen(%w[git describe --always --dirty], chdir: Options::ROOT, err: File::NULL, &:read).chomp
      commit.empty? ? nil : commit
    rescue SystemCallError
      nil
    end
  end
end

# frozen_string_literal: true

module Bench
  # One workload: what it does, in which unit it is measured, over which sizes, and the plain Ruby that does it.
  # The workloads are in bench/workloads, in the order of FILES.
  class Workload
    # What describes a workload besides its body; see {define}.
    Definition = Struct.new(:title, :about, :unit, :value, :better, :operations, :least, :points, :axis, :rounds, :pinned, :counted,
                            :baseline, :plain, :without, :seconds, keyword_init: true)

    ALL = {}
    FILES = %w[sockets streams http parked idle fibers locks timers latency services].freeze

    class << self
      # Adds a workload.
      #
      # @param name [String] what the command line calls it
      # @param definition
      #   title: what it is; about: one sentence on how it is measured; unit: of the compared figure;
      #   value: the compared figure of a sample (:rate, :seconds, or a name the body reports); better: :more or :less;
      #   operations: how many at scale 1; least: never fewer; points: sizes N it is run for; axis: what N is;
      #   rounds: how many, if fewer are enough; pinned: it runs on one core; counted: its system calls per operation are counted;
      #   baseline: examples/baseline has it; plain: { |run| } the same without a scheduler;
      #   without: kinds of targets that cannot run it, each with the smallest N that they cannot, and the reason;
      #   seconds: how long it takes, whatever the number of operations
      # @yieldparam run [Run]
      def define(name, **definition, &body)
        ALL[name] = new(name, Definition.new(better: :more, value: :rate, points: [nil], counted: true, least: 1, without: {},
                                             seconds: 0, **definition), body)
      end

      # @return [Hash{String => Workload}] by name
      def all
        FILES.each { |file| require_relative "../workloads/#{file}" }
        ALL
      end
    end

    attr_reader :name, :definition, :body

    def initialize(name, definition, body)
      @name = name
      @definition = definition
      @body = body
    end

    Definition.members.each { |member| define_method(member) { @definition[member] } }

    # How many operations one run makes: those of the definition, scaled.
    def operations_at(scale) = [(operations * scale).round, least].max
  end
end

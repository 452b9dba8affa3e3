# frozen_string_literal: true

module Bench
  # One workload: what it does, in which unit it is measured, over which sizes, and the plain Ruby that does it.
  # The rows are in bench/rows, in the order of ORDER.
  class Row
    # What a row needs to say besides its body; see {define}.
    Facts = Struct.new(:title, :about, :unit, :value, :better, :operations, :least, :points, :axis, :rounds, :pinned, :counted,
                       :floor, :plain, :latencies, :without, :seconds, keyword_init: true)

    ROWS = {}
    FILES = %w[sockets streams http parked fibers locks timers latency].freeze

    class << self
      # Adds a row.
      #
      # @param name [String] what the command line calls it
      # @param facts title: what it is; about: one sentence on how; unit; value: what of a sample is compared (:rate, :seconds,
      #   or a name the body reports); better: :more or :less; operations: how many at scale 1; least: never fewer (a
      #   scale below 1 makes a count smaller); points: sizes N it is run for; axis: what N is; rounds: if one is enough;
      #   pinned: on one core; counted: system calls per operation mean something; floor: examples/baseline has it;
      #   plain: { |run| } the same without a scheduler; latencies: it reports a distribution; without: kinds of
      #   targets that cannot, each with the size from which on, and the reason; seconds: how long it takes whatever the number of operations
      # @yieldparam run [Run]
      def define(name, **facts, &body)
        ROWS[name] = new(name, Facts.new(better: :more, value: :rate, points: [nil], counted: true, least: 1, without: {},
                                         seconds: 0, **facts), body)
      end

      def all
        FILES.each { |file| require_relative "../rows/#{file}" }
        ROWS
      end
    end

    attr_reader :name, :facts, :body

    def initialize(name, facts, body)
      @name = name
      @facts = facts
      @body = body
    end

    Facts.members.each { |fact| define_method(fact) { @facts[fact] } }

    def less_is_better? = better == :less

    # How many operations one run makes: the size of the row, scaled.
    def operations_at(scale) = [(operations * scale).round, least].max
  end
end

# frozen_string_literal: true

require_relative "../observe/health"

module Reactor
  module Top
    # The answer of the observed process at one moment.
    class Look
      # One of its schedulers.
      Row = Struct.new(:id, :name, :backend, :health, :fibers, :stalls)

      # @return [Hash{Symbol => Object}] the answer
      attr_reader :document
      # @return [Array<Row>]
      attr_reader :rows

      # @param document [Hash{Symbol => Object}]
      def initialize(document)
        @document = document
        @rows = document.fetch(:schedulers).map do |row|
          parts = %i[turns lateness queue].map { |name| histogram(row.fetch(name)) }
          Row.new(row[:id], row[:class], row[:backend], Health.new(row.fetch(:stats), *parts), row.fetch(:fibers), row.fetch(:stalls))
        end
      end

      # @param row [Row] of a later look
      # @return [Health] of the time between; since the scheduler was made, if this look does not have it
      def until(row)
        before = @rows.find { |other| other.id == row.id }
        before ? row.health - before.health : row.health
      end

      # @return [Hash{Symbol => Object}] with percentiles instead of buckets, in seconds since the schedulers were made
      def to_h
        rows = @rows.map do |row|
          { id: row.id, class: row.name, backend: row.backend, **row.health.to_h, fibers: row.fibers, stalls: row.stalls }
        end
        @document.merge(schedulers: rows)
      end

      private

      def histogram(part)
        counts = Array.new(Histogram::BUCKETS, 0)
        part.fetch(:counts).each_slice(2) { |bucket, count| counts[bucket] = count }
        Histogram.new(counts, part.fetch(:sum), part[:max] || 0.0)
      end
    end
  end
end

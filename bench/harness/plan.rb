# frozen_string_literal: true

module Bench
  # What is to be run, and running it: row by row and size by size, in each the targets in turn (A B C A B C), round by round.
  class Plan
    # A row at a size for one target, and what came of it.
    Cell = Struct.new(:row, :point, :target, :samples, :failure, :refusal, :calls, keyword_init: true) do
      # The figure the row is about.
      def values = samples.map { |sample| Plan.value(row, sample) }
    end

    # The compared figure of a sample: what the row names or works out, or else operations a second.
    def self.value(row, sample)
      return row.value.call(sample) if row.value.is_a?(Proc)

      sample.fetch(row.value) { row.value == :rate ? sample[:operations] / sample[:seconds] : raise(KeyError, "no #{row.value} in a run of #{row.name}") }
    end

    TRACED = 3 # how much longer a run may take if its calls are counted

    attr_reader :cells

    def initialize(rows, targets, options)
      @options = options
      @targets = targets
      @cells = rows.flat_map do |row|
        points(row).flat_map do |point|
          targets.map { |target| Cell.new(row: row, point: point, target: target, samples: [], refusal: refusal(target, row, point)) }
        end
      end
    end

    # How many runs there will be.
    def size = groups.sum { |row, cells| cells.count { |cell| runs?(cell) } * rounds(row) }

    # Runs everything.
    #
    # @param progress [Progress]
    def run(progress)
      groups.each do |row, cells|
        cells.each { |cell| spare(cell) }
        rounds(row).times do |round|
          cells.each { |cell| progress.step(cell, round) { sample(cell) } if runs?(cell) }
        end
        cells.each { |cell| progress.step(cell, nil) { count(cell) } if counts?(cell) }
        progress.row(cells)
      end
    end

    private

    # What has hung at a smaller size is not waited for again.
    def spare(cell)
      earlier = @cells.find { |other| other.row == cell.row && other.target == cell.target && other.failure&.state == :hang }
      cell.failure ||= Session::Failure.new(:hang, "not tried: it hung at N = #{Format.size(earlier.point)}") if earlier && earlier != cell
    end

    # Cells that are run in turn: of one row at one size.
    def groups = cells.group_by { |cell| [cell.row, cell.point] }.map { |(row, _), group| [row, group] }

    def refusal(target, row, point)
      return "nothing here can count system calls (perf, strace)" if row.value == :calls && !Calls.available?

      target.refusal(row, point)
    end

    def points(row)
      within = row.points.select { |point| point.nil? || row.axis == "bytes per answer" || point <= @options.most }
      within.empty? ? [row.points.min] : within
    end

    def rounds(row) = [row.rounds || @options.rounds, @options.rounds].min

    def runs?(cell) = !cell.refusal && !cell.failure && cell.row.value != :calls

    def counts?(cell) = !cell.refusal && !cell.failure && (cell.row.value == :calls || (@options.calls && cell.row.counted))

    def operations(row) = row.operations_at(@options.scale)

    def sample(cell)
      take(cell, session([], cell, operations(cell.row))) { |result| cell.samples << result }
    end

    # Counting slows a run down much: it makes fewer operations.
    def count(cell)
      fewer = [(operations(cell.row) * (cell.row.value == :calls ? 1 : 0.05)).round, cell.row.least].max
      result = Calls.count(fewer) { |wrapper, size| session(wrapper, cell, size) }
      take(cell, result) do |counted|
        cell.calls = counted
        cell.samples << counted.slice(:calls) if cell.row.value == :calls
      end
    end

    def take(cell, result)
      if result.is_a?(Session::Failure)
        cell.failure = result
      else
        yield result
        cell.values # a result without its figure is none
      end
    end

    def session(wrapper, cell, operations)
      pin = cell.row.pinned && @options.core ? ["taskset", "-c", @options.core] : []
      command = [*pin, *wrapper, *cell.target.command(cell.row, operations, cell.point, @options.ruby)]
      limit = (@options.limit * (wrapper.empty? ? 1 : TRACED)) + (cell.row.seconds * 2)
      distribution(Session.new(command, limit: limit, environment: cell.target.environment.to_h).result)
    end

    # The floor reports its latencies as they are; the Ruby side has made a curve of them.
    def distribution(result)
      return result unless result.is_a?(Hash) && (late = result.delete(:latencies))

      sorted = late.sort
      at = ->(share) { sorted[((sorted.size - 1) * share).round] }
      result.merge(p50: at[0.5], p99: at[0.99], p999: at[0.999], max: sorted.last, curve: Statistics.curve(sorted))
    end
  end
end

# frozen_string_literal: true

module Reactor
  module Top
    # Formats the lines of the view from the snapshots so far.
    class View
      BARS = "▁▂▃▄▅▆▇█"

      # @param snapshots [Array<Snapshot>] oldest first, at least one
      # @param message [String, nil] shown below the header
      def initialize(snapshots, message = nil)
        @snapshots = snapshots
        @message = message
      end

      # @param height [Integer, nil] maximum number of lines
      # @param width [Integer] maximum number of columns
      # @return [Array<String>]
      def lines(height = nil, width = 100)
        rows = @snapshots.last.rows
        top = [head, (@message && "  ** #{@message} **"), ("no open scheduler" if rows.empty?)].compact
        room = (height - top.size) / rows.size if height && rows.any?
        all = top + rows.each_with_index.flat_map { |row, number| cut(scheduler(row, number, width), room) }
        cut(all, height).map { |line| clean(line)[0, width] }
      end

      private

      def head
        document = @snapshots.last.document
        format("reactor-top  process %d  %s  Ruby %s  snapshot took %s  q quits", document[:pid], document[:program], document[:ruby],
               milliseconds(document[:snapshot_seconds]))
      end

      def cut(lines, room)
        return lines if room.nil? || lines.size <= room

        room.positive? ? [*lines.first(room - 1), "  … #{lines.size - room + 1} more lines"] : []
      end

      def scheduler(row, number, width)
        stats = row.health.stats
        title = "##{number + 1} #{row.name}  #{row.backend}  #{stats[:live]} live  #{stats[:watchers]} watchers  #{stats[:timers]} timers"
        stalls = row.stalls.map { |stall| item(stall[:seconds], stall[:name], stall[:backtrace].first) }
        fibers = row.fibers.map { |fiber| item(fiber[:seconds], fiber[:name], fiber[:place], wait(fiber)) }
        lists = list("slowest turns (found by stall:)", stalls) + list("waiting longest", fibers)
        ["", title, *series(row, width), *numbers(row), *lists]
      end

      def series(row, width)
        all = @snapshots.filter_map { |snapshot| snapshot.row(row.id)&.window }.last([width - 30, 10].max)
        [
          line("busy", all.map(&:utilization), 1.0) { |share| format("%5.1f %%", share * 100) },
          line("turn p99", all.map { |health| health.turns.percentile(0.99) }) { |seconds| milliseconds(seconds) },
          line("late p99", all.map { |health| health.lateness.percentile(0.99) }) { |seconds| milliseconds(seconds) },
          line("ready", all.map { |health| health.stats[:ready] }, &:to_s)
        ]
      end

      def line(label, values, top = values.compact.max)
        bars = values.map do |value|
          value ? BARS[top.zero? ? 0 : (value / top.to_f * (BARS.size - 1)).round.clamp(0, BARS.size - 1)] : " "
        end
        format("  %-11s %10s  %s", label, values.last ? yield(values.last) : "-", bars.join)
      end

      def numbers(row)
        health, turns = row.window, row.window.turns
        waits = row.health.waits.map { |hook, count| "#{hook} #{count}" }.join("  ")
        collected = health.seconds.zero? ? 0 : health.stats[:gc_ns] / 1e7 / health.seconds
        ["  turns        #{turns.count}, p50 #{milliseconds(turns.percentile(0.5))}, longest #{milliseconds(turns.max)}",
         "  waits        #{waits}",
         "  workers      queue p99 #{milliseconds(health.queue.percentile(0.99))}",
         format("  garbage      %.1f %% of the time", collected)]
      end

      def list(title, items) = items.empty? ? [] : ["  #{title}:", *items]

      # Shows the file without its folders.
      def item(seconds, name, place, what = nil)
        format("  %9.3f s  %s", seconds || 0, [what, name, place&.sub(%r{\A[^:]*/}, "")].compact.join("  "))
      end

      def wait(fiber) = format("%-11s", fiber[:state] == "ready" ? "ready" : "#{fiber[:hook]} #{fiber[:events]}")

      def milliseconds(seconds) = seconds ? format("%.3f ms", seconds * 1000) : "-"

      # Keeps control characters off the terminal, because names and paths come from another process.
      def clean(line) = line.gsub(/[[:cntrl:]]/, "?")
    end
  end
end

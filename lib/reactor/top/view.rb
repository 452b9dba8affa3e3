# frozen_string_literal: true

require_relative "look"

module Reactor
  module Top
    # The lines of the view, made from the looks so far.
    class View
      BARS = "▁▂▃▄▅▆▇█"
      LABEL = 14 # columns
      STALL = 15 # columns before a line of a backtrace
      LONGEST_NAME = 20 # columns that names of fibers are filled up to

      # @param looks [Array<Look>] the oldest first, at least one
      # @param message [String, nil] below the head
      def initialize(looks, message = nil)
        @looks = looks
        @message = message
      end

      # @param height [Integer, nil] lines at most
      # @param width [Integer, nil] columns at most
      # @return [Array<String>]
      def lines(height = nil, width = nil)
        width ||= 100
        rows = @looks.last.rows
        top = [head, (@message && "  ** #{@message} **"), ("no scheduler is open" if rows.empty?)].compact
        room = (height - top.size) / rows.size if height && rows.any?
        all = [*top, *rows.each_with_index.flat_map { |row, number| scheduler(row, number, width, room) }].map { |line| clean(line)[0, width] }
        height ? cut(all, height) : all
      end

      private

      def head
        document = @looks.last.document
        format("reactor-top  process %d  %s  Ruby %s  a look took %s  q ends", document[:pid], document[:program], document[:ruby],
               milliseconds(document[:look_seconds]))
      end

      def scheduler(row, number, width, room)
        health = windows(row).last
        own = ["", "##{number + 1} #{row.name}  #{row.backend}  #{row.health.stats[:live]} live  #{row.health.stats[:watchers]} watchers  #{row.health.stats[:timers]} timers",
               *series(row, width), *facts(row, health)]
        [*own, *both(fibers(row, width), stalls(row, width), room && (room - own.size))]
      end

      # Two lists, cut to `room` lines: each gets half of them, and the lines that the other list does not need.
      def both(first, second, room)
        return first + second if room.nil? || first.size + second.size <= room

        half = [room / 2, room - second.size].max.clamp(0, first.size)
        cut(first, half) + cut(second, [room - half, 0].max)
      end

      def cut(lines, room)
        return lines if lines.size <= room

        room.zero? ? [] : [*lines.first(room - 1), "  … #{lines.size - room + 1} lines more"]
      end

      # The health between each look and the next. One look alone counts from the start of the scheduler.
      def windows(row)
        same = @looks.filter_map { |look| (found = look.rows.find { |other| other.id == row.id }) && [look, found] }
        return [row.health] if same.size == 1

        same.each_cons(2).map { |(before, _), (_, later)| before.until(later) }
      end

      def series(row, width)
        all = windows(row)
        [
          line("busy", all, width, ->(health) { health.utilisation }, ->(share) { format("%5.1f %%", share * 100) }, top: 1.0),
          line("turn p99", all, width, ->(health) { health.turns.percentile(0.99) }, method(:milliseconds)),
          line("late p99", all, width, ->(health) { health.lateness.percentile(0.99) }, method(:milliseconds)),
          line("ready", all, width, ->(health) { health.stats[:ready] }, ->(count) { count.to_s })
        ]
      end

      def line(label, all, width, value, text, top: nil)
        values = all.last([width - LABEL - 16, 10].max).map(&value)
        now = values.last ? text.(values.last) : "-"
        format("  %-#{LABEL - 3}s %10s  %s", label, now, sparkline(values, top))
      end

      def sparkline(values, top)
        top ||= values.compact.max
        values.map do |value|
          next " " unless value
          next BARS[0] if top.nil? || top.zero?

          BARS[(value / top.to_f * (BARS.size - 1)).round.clamp(0, BARS.size - 1)]
        end.join
      end

      def facts(row, health)
        turns = health.turns
        waits = row.health.waits.map { |hook, count| "#{hook} #{count}" }.join("  ")
        collected = health.seconds.zero? ? 0 : health.stats[:gc_ns] / 1e7 / health.seconds
        ["  turns        #{turns.count}, p50 #{milliseconds(turns.percentile(0.5))}, longest #{milliseconds(turns.max)}",
         "  waits        #{waits}",
         format("  workers      queue p99 %s; collecting garbage %.1f %% of the time", milliseconds(health.queue.percentile(0.99)), collected)]
      end

      def fibers(row, columns)
        return [] if row.fibers.empty?

        width = row.fibers.map { |fiber| fiber[:name].to_s.size }.max.clamp(0, LONGEST_NAME)
        ["  waiting longest:", *row.fibers.map do |fiber|
          purpose = [fiber[:hook], (fiber[:events] unless fiber[:events].to_s.empty?)].compact.join(" ")
          name = format("%-#{width}s  ", fiber[:name]) if width.positive?
          start = format("  %9.3f s  %-14s %s", fiber[:seconds] || 0, fiber[:state] == "ready" ? "ready" : purpose, name)
          start + place(fiber[:place].to_s, columns - start.size)
        end]
      end

      def stalls(row, columns)
        return [] if row.stalls.empty?

        ["  slowest turns (of those that stall: has found):", *row.stalls.flat_map do |stall|
          [format("  %9.3f s  %s", stall[:seconds], stall[:name]), *stall[:backtrace].first(4).map { |line| (" " * STALL) + place(line, columns - STALL) }]
        end]
      end

      # Without the folders, if there is no room for them: the file and the line tell the place.
      def place(text, room)
        path, rest = text.match(/\A(.+?)(:\d+.*)\z/m)&.captures
        return text if text.size <= room || !path&.include?("/")

        "…/#{File.basename(path)}#{rest}"
      end

      def milliseconds(seconds) = seconds ? format("%.3f ms", seconds * 1000) : "-"

      # Names and paths come from another process: no control character reaches the terminal.
      def clean(line) = line.gsub(/[[:cntrl:]]/, "?")
    end
  end
end

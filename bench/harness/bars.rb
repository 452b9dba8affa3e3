# frozen_string_literal: true

module Bench
  module Plot
    # One bar a target with the spread of its rounds; the baseline, and Ruby without a scheduler, as lines across. The figures stand
    # in a column beyond the scale, so no line crosses them.
    class Bars
      WIDTH = Frame::WIDTH
      RIGHT = 420
      FIGURES = 430
      STEPS = (26..46)
      HEIGHT = 18
      TOP = 26
      SAMPLE = 2 # the radius of a dot
      ABSENT = { "left_out" => "absent" }.freeze

      def initialize(row, point, targets, palette)
        @row = row
        @point = point
        @palette = palette
        @cells = targets.to_h { |target| [target, point[:cells].fetch(target[:name].to_sym)] }
        @lines, @bars = targets.partition { |target| %w[baseline plain].include?(target[:kind]) }
        @lines = @lines.select { |target| ok?(target) }.sort_by { |target| @cells[target][:median] }
      end

      def svg
        highest = @cells.values.flat_map { |cell| cell[:values] || [] }
        return "" if highest.empty?

        @left = (20 + @bars.map { |target| Plot.width(target[:label]) }.max.to_i).clamp(60, 200)
        @scale = Scale.new(highest, [@left, RIGHT])
        @step = ((Frame::BOTTOM - TOP) / [@bars.size, 1].max).clamp(STEPS.min, STEPS.max)
        @bottom = [TOP + (@bars.size * @step), Frame::BOTTOM].max
        Plot.svg(WIDTH, @bottom + Frame::HEIGHT - Frame::BOTTOM, "#{@row[:title]}, #{@row[:unit]}", axis, each_bar { |target, y| mark(target, y) },
                 @lines.each_with_index.map { |target, index| across(target, index) }, each_bar { |target, y| words(target, y) })
      end

      private

      def ok?(target) = @cells[target][:state] == "ok"

      def axis
        @scale.ticks.map do |tick|
          place = @scale.at(tick)
          [Plot.line(place, TOP - 4, place, @bottom, tick.zero? ? "base" : "grid"),
           Plot.text(place, @bottom + 14, Plot.short(tick), "tick", anchor: "middle")]
        end
      end

      # In the middle of the room there is.
      def each_bar
        first = TOP + ((@bottom - TOP - (@bars.size * @step)) / 2) + ((@step - HEIGHT) / 2)
        @bars.each_with_index.map { |target, index| yield target, first + (index * @step) }
      end

      def mark(target, y)
        return unless ok?(target)

        cell = @cells[target]
        tip = "#{target[:label]}: #{Format.figure(cell[:median])} #{@row[:unit]}, from #{Format.figure(cell[:low])} to #{Format.figure(cell[:high])}"
        width = [@scale.at(cell[:median]) - @left, 2].max
        [Plot.bar(@left, y, width, HEIGHT, "fill #{@palette[target[:name]]}", tip), spread(cell, y + (HEIGHT / 2))]
      end

      def words(target, y)
        cell = @cells[target]
        name = Plot.text(@left - 8, y + 13, target[:label], "name", anchor: "end")
        return [name, Plot.text(FIGURES, y + 13, ABSENT.fetch(cell[:state], cell[:state]), cell[:state] == "left_out" ? "tick" : "missing")] unless ok?(target)

        [name, Plot.text(FIGURES, y + 13, Format.figure(cell[:median]), "value", more: cpu(cell))]
      end

      # Throughput is half of the truth.
      def cpu(cell) = ("#{Format.figure(cell[:cpu_us])} us CPU" if cell[:cpu_us] && !@row[:unit].match?(/CPU|MiB/))

      def spread(cell, y)
        return if cell[:values].size < 2

        low, high = @scale.at(cell[:low]), @scale.at(cell[:high])
        places = cell[:values].sort.map { |value| @scale.at(value) }
        dots = places.zip(Plot.beside(places, 2 * SAMPLE)).map { |place, step| Plot.dot(place, y + (step * 2 * SAMPLE), SAMPLE, "sample") }
        [Plot.line(low, y, high, y, "spread"), dots]
      end

      # Of two lines, the name of the left one ends at its line, and that of the right one begins there: so names do not meet.
      def across(target, index)
        cell = @cells[target]
        place = @scale.at(cell[:median])
        kind = target[:kind] == "baseline" ? "baseline" : "plain"
        words = "#{kind == 'baseline' ? 'baseline' : 'Ruby alone'} #{Format.figure(cell[:median])}"
        left = @lines.size > 1 && index.zero?
        [Plot.line(place, TOP - 10, place, @bottom, kind), Plot.text(left ? place - 5 : place + 5, 12, words, "#{kind}-label", anchor: left ? "end" : "start")]
      end
    end
  end
end

# frozen_string_literal: true

module Bench
  module Plot
    # One bar a target with the spread of its rounds; the floor, and Ruby without a scheduler, as lines across.
    class Bars
      WIDTH = 560
      LEFT = 118
      RIGHT = 478
      STEP = 30
      HEIGHT = 18
      TOP = 26

      def initialize(row, point, targets, palette)
        @row = row
        @point = point
        @palette = palette
        @cells = targets.to_h { |target| [target, point[:cells].fetch(target[:name].to_sym)] }
        @lines, @bars = targets.partition { |target| %w[floor plain].include?(target[:kind]) }
        @lines.select! { |target| ok?(target) }
      end

      def svg
        highest = @cells.values.flat_map { |cell| cell[:values] || [] }
        return "" if highest.empty?

        @scale = Scale.new(highest, [LEFT, RIGHT])
        @bottom = TOP + (@bars.size * STEP)
        Plot.svg(WIDTH, @bottom + 26, "#{@row[:title]}, #{@row[:unit]}", axis, @bars.each_with_index.map { |target, index| mark(target, index) },
                 @lines.each_with_index.map { |target, index| across(target, index) })
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

      def mark(target, index)
        y = TOP + (index * STEP) + 4
        name = Plot.text(LEFT - 8, y + 13, target[:label], "name", anchor: "end")
        cell = @cells[target]
        return [name, Plot.text(LEFT + 6, y + 13, cell[:state].tr("_", " "), "missing")] unless ok?(target)

        ends = @scale.at(cell[:median])
        tip = "#{target[:label]}: #{Format.figure(cell[:median])} #{@row[:unit]}, from #{Format.figure(cell[:low])} to #{Format.figure(cell[:high])}"
        [name, Plot.bar(LEFT, y, [ends - LEFT, 2].max, HEIGHT, "fill #{@palette[target[:name]]}", tip), spread(cell, y + (HEIGHT / 2)),
         Plot.text([ends, @scale.at(cell[:high])].max + 7, y + 13, Format.figure(cell[:median]), "value")]
      end

      def spread(cell, y)
        return if cell[:values].size < 2

        low, high = @scale.at(cell[:low]), @scale.at(cell[:high])
        [Plot.line(low, y, high, y, "spread"), cell[:values].map { |value| Plot.dot(@scale.at(value), y, 2, "sample") }]
      end

      def across(target, index)
        cell = @cells[target]
        place = @scale.at(cell[:median])
        kind = target[:kind] == "floor" ? "floor" : "plain"
        words = "#{kind == 'floor' ? 'floor' : 'Ruby alone'} #{Format.figure(cell[:median])}"
        late = place > WIDTH - 150
        [Plot.line(place, TOP - 10, place, @bottom, kind),
         Plot.text(late ? place - 4 : place + 4, 11 + (index * 11), words, "#{kind}-label", anchor: late ? "end" : "start")]
      end
    end
  end
end

# frozen_string_literal: true

module Bench
  module Plot
    # One bar a target with the spread of its rounds; the baseline, and Ruby without a scheduler, as lines across.
    class Bars
      WIDTH = 560
      LEFT = 118
      RIGHT = 424
      STEP = 30
      HEIGHT = 18
      TOP = 26

      def initialize(row, point, targets, palette)
        @row = row
        @point = point
        @palette = palette
        @cells = targets.to_h { |target| [target, point[:cells].fetch(target[:name].to_sym)] }
        @lines, @bars = targets.partition { |target| %w[baseline plain].include?(target[:kind]) }
        @lines.select! { |target| ok?(target) }
      end

      def svg
        highest = @cells.values.flat_map { |cell| cell[:values] || [] }
        return "" if highest.empty?

        @scale = Scale.new(highest, [LEFT, RIGHT])
        @bottom = TOP + (@bars.size * STEP)
        # The words come last, so that nothing is drawn through them.
        Plot.svg(WIDTH, @bottom + 26, "#{@row[:title]}, #{@row[:unit]}", axis, each_bar { |target, y| mark(target, y) },
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

      def each_bar = @bars.each_with_index.map { |target, index| yield target, TOP + (index * STEP) + 4 }

      def mark(target, y)
        return unless ok?(target)

        cell = @cells[target]
        tip = "#{target[:label]}: #{Format.figure(cell[:median])} #{@row[:unit]}, from #{Format.figure(cell[:low])} to #{Format.figure(cell[:high])}"
        width = [@scale.at(cell[:median]) - LEFT, 2].max
        [Plot.bar(LEFT, y, width, HEIGHT, "fill #{@palette[target[:name]]}", tip), spread(cell, y + (HEIGHT / 2))]
      end

      def words(target, y)
        cell = @cells[target]
        name = Plot.text(LEFT - 8, y + 13, target[:label], "name", anchor: "end")
        return [name, Plot.text(LEFT + 6, y + 13, cell[:state].tr("_", " "), "missing")] unless ok?(target)

        [name, Plot.text(@scale.at(cell[:high]) + 7, y + 13, Format.figure(cell[:median]), "value", more: cpu(cell))]
      end

      # Throughput is half of the truth.
      def cpu(cell) = ("#{Format.figure(cell[:cpu_us])} us CPU" if cell[:cpu_us] && !@row[:unit].match?(/CPU|MiB/))

      def spread(cell, y)
        return if cell[:values].size < 2

        low, high = @scale.at(cell[:low]), @scale.at(cell[:high])
        [Plot.line(low, y, high, y, "spread"), cell[:values].map { |value| Plot.dot(@scale.at(value), y, 2, "sample") }]
      end

      def across(target, index)
        cell = @cells[target]
        place = @scale.at(cell[:median])
        kind = target[:kind] == "baseline" ? "baseline" : "plain"
        words = "#{kind == 'baseline' ? 'baseline' : 'Ruby alone'} #{Format.figure(cell[:median])}"
        late = place > WIDTH - 150
        [Plot.line(place, TOP - 10, place, @bottom, kind),
         Plot.text(late ? place - 4 : place + 4, 11 + (index * 11), words, "#{kind}-label", anchor: late ? "end" : "start")]
      end
    end
  end
end

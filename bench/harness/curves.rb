# frozen_string_literal: true

module Bench
  module Plot
    # Lines in a frame, each named at its end; the places of names give way to each other.
    class Frame
      WIDTH = 560
      HEIGHT = 300
      LEFT = 52
      TOP = 14
      BOTTOM = 258
      FEW = 4
      DOT = 4

      # @param lines [Array] of [target, [[x, y, tip], …]]; x_axis: an object with at and marks; unit: of y
      def initialize(title, lines, x_axis, unit, palette)
        @title = title
        @lines = lines
        # What stands right of the plot: the names with their last figures.
        @right = (WIDTH - 18 - lines.map { |target, points| Plot.width(name(target, points.last[1])) }.max).clamp(300, 440)
        @x = x_axis.within(LEFT, @right)
        @unit = unit
        @palette = palette
        values = lines.flat_map { |_, points| points.map { |point| point[1] } }
        positive = values.select(&:positive?)
        @y = Scale.new(values, [BOTTOM, TOP + 12], log: positive.size == values.size && values.max > 12 * values.min)
      end

      def svg
        Plot.svg(WIDTH, HEIGHT, @title, axes, @lines.map { |target, points| curve(target, points) }, dots, names)
      end

      private

      def axes
        [@y.ticks.map { |tick| [Plot.line(LEFT, @y.at(tick), @right, @y.at(tick), "grid"), Plot.text(LEFT - 6, @y.at(tick) + 4, Plot.short(tick), "tick", anchor: "end")] },
         @x.marks.map { |place, words| Plot.text(place, BOTTOM + 16, words, "tick", anchor: "middle") },
         Plot.text(LEFT - 44, TOP - 2, @unit, "tick"), Plot.text((LEFT + @right) / 2, HEIGHT - 8, @x.title, "tick", anchor: "middle")]
      end

      def curve(target, points)
        kind = @palette[target[:name]]
        places = points.map { |x, y, _| [@x.at(x), @y.at(y)] }
        Plot.path(places, "stroke #{kind}#{' dashed' if %w[baseline plain].include?(target[:kind])}", target[:label])
      end

      # Of lines with few points, a dot each. Dots at the same x that would hide each other stand beside each other.
      def dots
        few = @lines.select { |_, points| points.size <= FEW }
        few.flat_map { |target, points| points.map { |x, y, tip| [target, @x.at(x), @y.at(y), tip] } }.group_by { |_, x, _, _| x }.values.flat_map do |column|
          column.zip(Plot.beside(column.map { |_, _, y, _| y }, 2 * DOT)).map { |(target, x, y, tip), step| Plot.dot(x + (step * 2 * DOT), y, DOT, "fill ring #{@palette[target[:name]]}", tip) }
        end
      end

      def names
        ends = @lines.map { |target, points| [target, @x.at(points.last[0]), @y.at(points.last[1]), points.last[1]] }
        spaced(ends.sort_by { |_, _, y, _| y }).map do |(target, x, y, value), place|
          [Plot.line(x + 6, y, @right + 10, place, "leader"),
           Plot.text(@right + 14, place + 4, name(target, value), "name")]
        end
      end

      def name(target, value) = "#{target[:kind] == 'baseline' ? 'baseline' : target[:label]} #{Format.figure(value)}"

      # Gives each name a place of its own, at least a line apart, all within the frame.
      def spaced(ends)
        step = 15
        places = []
        ends.each { |entry| places << [entry[2], places.empty? ? TOP : places.last + step].max }
        over = places.last - BOTTOM
        places.map! { |place| place - over } if over.positive?
        (places.size - 2).downto(0) { |index| places[index] = [places[index], ends[index][2]].max.clamp(nil, places[index + 1] - step) } if over.positive?
        ends.zip(places)
      end
    end

    # Where an x axis begins and ends.
    module Axis
      def within(left, right)
        @left = left
        @right = right
        self
      end
    end

    # The x axis of sizes N, evenly spread by their order of magnitude.
    class Sizes
      include Axis

      attr_reader :title

      def initialize(sizes, title)
        @sizes = sizes
        @title = title
      end

      def at(size) = (@left + 16 + (share(size) * (@right - @left - 32))).round(1)

      def marks = @sizes.map { |size| [at(size), Format.size(size)] }

      private

      # Zero has no logarithm: it stands at the place of a half.
      def share(size)
        low, high = @sizes.minmax.map { |end_| magnitude(end_) }
        high == low ? 0.5 : (magnitude(size) - low) / (high - low)
      end

      def magnitude(size) = Math.log10(size.zero? ? 0.5 : size)
    end

    # The x axis of a distribution: its far end is what interests, so each next nine has as much room.
    class Shares
      include Axis

      NINES = { 0 => "0", 0.5 => "50 %", 0.9 => "90 %", 0.99 => "99 %", 0.999 => "99.9 %" }.freeze
      MOST = 3.5

      def title = "share of messages that came within this time"

      def at(share)
        nines = [share < 1 ? -Math.log10(1 - share) : MOST, MOST].min
        (@left + (nines / MOST * (@right - @left))).round(1)
      end

      def marks = NINES.map { |share, words| [at(share), words] }
    end

    # Plots of results as frames.
    module Curves
      module_function

      # A row's figure over its sizes.
      def scaling(row, targets, palette)
        lines = targets.filter_map do |target|
          points = row[:points].filter_map { |point| size(row, point, target) }
          [target, points] unless points.empty?
        end
        return "" if lines.empty?

        Frame.new(row[:title], lines, Sizes.new(row[:points].map { |point| point[:n] }, "N: #{row[:axis]}"), row[:unit], palette).svg
      end

      def size(row, point, target)
        cell = point[:cells].fetch(target[:name].to_sym)
        return unless cell[:state] == "ok"

        [point[:n], cell[:median], "#{target[:label]}, N = #{Format.size(point[:n])}: #{Format.figure(cell[:median])} #{row[:unit]}"]
      end

      # How latencies are distributed at one size.
      def distribution(row, point, targets, palette)
        lines = targets.filter_map do |target|
          curve = point[:cells].fetch(target[:name].to_sym)[:curve]
          [target, curve] if curve
        end
        return "" if lines.empty?

        Frame.new("#{row[:title]}: distribution", lines, Shares.new, "us", palette).svg
      end
    end
  end
end

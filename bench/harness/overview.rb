# frozen_string_literal: true

module Bench
  module Plot
    # Every row on one line: how much faster than the best that is not ours each target is.
    class Overview
      # Where it is drawn. On a narrow screen a name stands above its line.
      Layout = Struct.new(:width, :left, :right, :step, :marks, :words)
      WIDE = Layout.new(1120, 330, 1090, 34, [1 / 16.0, 0.25, 0.5, 1.0, 2.0, 4.0, 16.0], ["← not as good", "better than the best other →"])
      NARROW = Layout.new(340, 14, 326, 52, [1 / 16.0, 0.25, 1.0, 4.0, 16.0], ["← not as good", "better →"])
      DOT = 5
      APART = 9 # between dots that stand beside each other
      TOP = 34
      MOST = 32.0

      def initialize(results, palette, layout = WIDE)
        @results = results
        @palette = palette
        @layout = layout
        @lines = results.rows.filter_map { |row| line(row) }
      end

      def svg
        return "" if @lines.empty?

        step = @layout.step
        @bottom = TOP + (@lines.size * step)
        marks = @lines.each_with_index.map { |line, index| draw(*line, TOP + (index * step)) }
        Plot.svg(@layout.width, @bottom + 40, "Every row at a glance", axis, marks)
      end

      private

      # The largest size of a row at which there is something to compare with.
      def line(row)
        row[:points].reverse_each do |point|
          peers = targets(point, %w[threads peer])
          ours = targets(point, %w[reactor])
          next if peers.empty? || ours.empty?

          best = peers.values.public_send(row[:better] == "less" ? :min : :max)
          return [row, point, speeds(row, targets(point, %w[threads peer reactor baseline]), best)] if best.positive?
        end
        nil
      end

      def targets(point, kinds)
        @results.targets.select { |target| kinds.include?(target[:kind]) }
          .to_h { |target| [target, point[:cells].fetch(target[:name].to_sym)[:median]] }.compact
      end

      def speeds(row, medians, best)
        medians.transform_values { |median| row[:better] == "less" ? best.fdiv([median, best.fdiv(MOST)].max) : median.fdiv(best) }
      end

      def place(speed)
        share = (Math.log2(speed.clamp(1 / MOST, MOST)) / Math.log2(MOST) / 2) + 0.5
        (@layout.left + (share * (@layout.right - @layout.left))).round(1)
      end

      def axis
        marks = @layout.marks.map do |speed|
          words = speed < 1 ? "1/#{(1 / speed).round}" : "#{speed.round}x"
          [Plot.line(place(speed), TOP - 6, place(speed), @bottom, speed == 1 ? "base" : "grid"),
           Plot.text(place(speed), @bottom + 16, words, "tick", anchor: "middle")]
        end
        worse, better = @layout.words
        [marks, Plot.text(place(1) + 8, TOP - 14, better, "tick"), Plot.text(place(1) - 8, TOP - 14, worse, "tick", anchor: "end")]
      end

      def draw(row, point, speeds, top)
        y = top + (@layout.step / 2) + (narrow? ? 8 : 0)
        title = point[:n] ? "#{row[:title].sub(/ (of|among) N\z/, '')}, N = #{Format.size(point[:n])}" : row[:title]
        order = speeds.sort_by { |target, _| target[:kind] == "reactor" ? 0 : 1 }
        steps = Plot.beside(order.map { |_, speed| place(speed) }, 2 * DOT)
        marks = order.zip(steps).map do |(target, speed), step|
          tip = "#{target[:label]}: #{Kernel.format('%.2f', speed)}x the best other"
          next baseline(place(speed), y + (step * APART), tip) if target[:kind] == "baseline"

          Plot.dot(place(speed), y + (step * APART), DOT, "fill ring #{@palette[target[:name]]}", tip)
        end.reverse
        [Plot.line(@layout.left, y, @layout.right, y, "row"), name(title, y), marks]
      end

      def name(title, y) = narrow? ? Plot.text(0, y - 18, title, "name") : Plot.text(@layout.left - 12, y + 4, title, "name", anchor: "end")

      def narrow? = @layout.equal?(NARROW)

      def baseline(x, y, tip) = Plot.path([[x, y - 6], [x + 5, y], [x, y + 6], [x - 5, y], [x, y - 6]], "diamond", tip)
    end
  end
end

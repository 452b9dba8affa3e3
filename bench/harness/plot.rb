# frozen_string_literal: true

require "cgi/escape"

module Bench
  # Drawing: a scale from figures to places, and the few marks a plot is made of. Colours are classes of page.css.
  module Plot
    # From figures to places between two ends; linear from zero, or logarithmic.
    class Scale
      def initialize(values, places, log: false)
        @places = places
        @log = log
        @low, @high = log ? decades(values) : [0.0, values.max.to_f]
        @high = @low + 1 if @high <= @low
      end

      def at(value)
        share = @log ? (Math.log10([value, @low].max / @low) / Math.log10(@high / @low)) : (value - @low) / (@high - @low)
        (@places.first + (share * (@places.last - @places.first))).round(1)
      end

      # Round figures along the axis.
      def ticks
        return powers if @log

        step = 10.0**Math.log10(@high / 3).floor
        step *= [1, 2, 5, 10].find { |factor| @high / (step * factor) <= 4 }
        (0..(@high / step).floor).map { |index| index * step }
      end

      private

      def decades(values)
        low, high = values.select(&:positive?).minmax
        return [1.0, 10.0] unless low

        [10.0**Math.log10(low).floor, 10.0**Math.log10(high).ceil]
      end

      def powers = (Math.log10(@low).round..Math.log10(@high).round).map { |power| 10.0**power }
    end

    module_function

    def svg(width, height, label, *marks)
      %(<svg viewBox="0 0 #{width} #{height}" role="img" aria-label="#{h(label)}">#{marks.flatten.compact.join}</svg>)
    end

    def h(text) = CGI.escapeHTML(text.to_s)

    # About how wide a name is: its characters at 12 px.
    def width(words) = words.to_s.size * 6.6

    def line(x1, y1, x2, y2, kind) = %(<line class="#{kind}" x1="#{x1}" y1="#{y1}" x2="#{x2}" y2="#{y2}"/>)

    def text(x, y, words, kind = "label", anchor: "start", more: nil)
      more &&= %(<tspan class="more" dx="8">#{h(more)}</tspan>)
      %(<text class="#{kind}" x="#{x}" y="#{y}" text-anchor="#{anchor}">#{h(words)}#{more}</text>)
    end

    def dot(x, y, radius, kind, tip = nil) = %(<circle class="#{kind}" cx="#{x}" cy="#{y}" r="#{radius}">#{tip(tip)}</circle>)

    def path(points, kind, tip = nil)
      %(<path class="#{kind}" d="M#{points.map { |x, y| "#{x} #{y}" }.join('L')}">#{tip(tip)}</path>)
    end

    # A bar that grows to the right: square at its foot, rounded at its end.
    def bar(x, y, width, height, kind, tip = nil)
      r = [4, width / 2.0].min
      %(<path class="#{kind}" d="M#{x} #{y}h#{(width - r).round(1)}q#{r} 0 #{r} #{r}v#{height - (2 * r)}q0 #{r} #{-r} #{r}h#{-(width - r).round(1)}z">#{tip(tip)}</path>)
    end

    # How far to move each mark along the other axis, so that marks that would hide each other stand beside each other: steps of 0,
    # 1, -1, 2, -2 … in the order of places.
    #
    # @param places [Array<Numeric>] of marks on one line
    # @param gap [Numeric] the least distance of two marks on the same line
    # @return [Array<Integer>] the step of each mark
    def beside(places, gap)
      taken = Hash.new { |lanes, lane| lanes[lane] = [] }
      places.map do |place|
        step = (0..).lazy.map { |index| index.odd? ? (index + 1) / 2 : -index / 2 }.find { |lane| taken[lane].none? { |other| (other - place).abs < gap } }
        taken[step] << place
        step
      end
    end

    def tip(words) = words && "<title>#{h(words)}</title>"

    # Figures that label an axis, in few characters.
    def short(value)
      size = value.abs
      return "#{trim(value / 1e6)}M" if size >= 1e6
      return "#{trim(value / 1e3)}k" if size >= 1e4 || (size >= 1e3 && (value % 100).zero?)

      trim(value)
    end

    def trim(value) = Kernel.format("%.4g", value.round(6))
  end
end

# frozen_string_literal: true

require "cgi/escape"

module Bench
  # The chart of README: a few rows of results as SVG files, for a light and a dark page, in two columns or in one for a phone.
  class Headline
    THEMES = {
      "light" => { ink: "#1f2328", soft: "#59636e", faint: "#818b98", rule: "#d1d9e0", ours: "#2a78d6", others: "#b6bec8" },
      "dark" => { ink: "#f0f6fc", soft: "#9198a1", faint: "#7d8590", rule: "#3d444d", ours: "#4c96ee", others: "#59626d" }
    }.freeze
    KINDS = %w[reactor peer threads].freeze
    COLUMN = 400
    GAP = 40
    NAMES = 108 # the width of the column of names
    FIGURES = 84
    BAR = 14
    STEP = 22
    HEAD = 50
    LINE = 18
    WRAP = 61 # characters in the width of a column

    class << self
      # The results as they are kept in the repository: only the rows that are named, without what the chart does not show.
      #
      # @param names [Array<String>] of workloads; all if there is none
      # @param cpu [Boolean] compare CPU time per operation, which other load on the machine changes less than the rate
      # @return [Hash]
      def slim(data, names, cpu: false)
        unknown = names - data[:rows].map { |row| row[:name] }
        raise ArgumentError, "these results have no row #{unknown.join(', ')}" unless unknown.empty?

        rows = names.empty? ? data[:rows] : names.map { |name| data[:rows].find { |row| row[:name] == name } }
        rows = rows.map { |row| row.merge(points: [largest(data, row)]) }
        rows = rows.map { |row| by_cpu(row) } if cpu
        data.slice(:about, :targets).merge(rows: rows.map { |row| row.merge(points: row[:points].map { |point| kept(point) }) })
      end

      private

      # The largest size at which reactor and another target have a result.
      def largest(data, row)
        point = row[:points].reverse.find { |candidate| both?(data, candidate) }
        raise ArgumentError, "#{row[:name]} has no size at which reactor and another target have a result" unless point

        point
      end

      # Rounded, because versions of the json gem write the last digits differently.
      def kept(point)
        cells = point[:cells].transform_values do |cell|
          cell.slice(:state, :median, :low, :high).transform_values { |value| Float === value ? value.round(4) : value }
        end
        { n: point[:n], cells: cells }
      end

      def by_cpu(row)
        cells = row[:points].first[:cells].transform_values do |cell|
          next cell unless cell[:state] == "ok"

          raise ArgumentError, "these results no longer have the CPU time of each run: name a bench.json" unless cell[:samples]

          used = cell[:samples].map { |sample| sample[:cpu] * 1e6 / sample[:operations] }
          cell.merge(median: Bench.median(used), low: used.min, high: used.max)
        end
        row.merge(unit: "us of CPU per operation", better: "less", points: [row[:points].first.merge(cells: cells)])
      end

      def both?(data, point)
        kinds = data[:targets].select { |target| point[:cells].dig(target[:name].to_sym, :state) == "ok" }.map { |target| target[:kind] }
        kinds.include?("reactor") && kinds.intersect?(%w[peer threads])
      end
    end

    # @param results [Results] whose rows have one size each
    # @param columns [Integer] of panels
    def initialize(results, theme, columns: 2)
      @results = results
      @columns = columns
      @width = (columns * (COLUMN + GAP)) - GAP
      @colours = THEMES.fetch(theme)
      @targets = results.targets.select { |target| KINDS.include?(target[:kind]) }.sort_by.with_index { |target, index| [KINDS.index(target[:kind]), index] }
    end

    # @return [String] the SVG file
    def text
      panel = HEAD + (@targets.size * STEP) + 22
      rows = @results.rows.each_with_index.map { |row, index| panel(row, (index % @columns) * (COLUMN + GAP), (index / @columns) * panel) }
      top = @results.rows.size.fdiv(@columns).ceil * panel
      notes = foot.each_with_index.map { |line, index| label(0, top + 14 + (index * LINE), line, :faint, 12) }
      height = top + 14 + (foot.size * LINE)
      %(<svg xmlns="http://www.w3.org/2000/svg" width="#{@width}" height="#{height}" viewBox="0 0 #{@width} #{height}" role="img" aria-label="#{CGI.escapeHTML(summary)}" ) +
        %(font-family="-apple-system, BlinkMacSystemFont, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif">\n) +
        "#{[rows, rule(top - 6), notes].flatten.join("\n")}\n</svg>\n"
    end

    # One sentence for readers that do not see the chart.
    def summary
      "#{@targets.map { |target| name(target) }.join(', ')}: " +
        @results.rows.map { |row| "#{title(row)} (#{row[:unit]}): #{@targets.map { |target| figure(cell(row, target)) }.join(', ')}" }.join("; ")
    end

    private

    def panel(row, x, y)
      better = row[:better] == "less" ? "less is better" : "more is better"
      highest = @targets.filter_map { |target| cell(row, target)[:high] }.max
      scale = ->(value) { (x + NAMES + (value / highest.to_f * (COLUMN - FIGURES - NAMES))).round(1) }
      [label(x, y + 16, title(row), :ink, 15, weight: 600), label(x, y + 35, "#{row[:unit]}, #{better}", :soft, 12),
       @targets.each_with_index.map { |target, index| bar(target, cell(row, target), scale, x, y + HEAD + (index * STEP)) }]
    end

    def bar(target, cell, scale, x, y)
      ours = target[:kind] == "reactor"
      words = label(x, y + 11, name(target), ours ? :ink : :soft, 13, weight: ours ? 600 : 400)
      return [words, label(x + NAMES, y + 11, figure(cell), :faint, 12)] unless cell[:state] == "ok"

      low, median, high = cell.values_at(:low, :median, :high).map { |value| scale.(value) }
      left = x + NAMES
      [words, %(<rect x="#{left}" y="#{y}" width="#{[median - left, 2].max.round(1)}" height="#{BAR}" rx="3" fill="#{@colours[ours ? :ours : :others]}"/>),
       (%(<path d="M#{low} #{y + (BAR / 2)}H#{high}" stroke="#{@colours[:ink]}" opacity=".55"/>) if high > low),
       label([high, left + 2].max + 7, y + 11, figure(cell), ours ? :ink : :soft, 13, weight: ours ? 600 : 400)]
    end

    def figure(cell) = cell[:state] == "ok" ? Format.figure(cell[:median]) : { "left_out" => "absent", "hang" => "hangs", "failed" => "fails" }.fetch(cell[:state])

    def cell(row, target) = row[:points].first[:cells].fetch(target[:name].to_sym)

    def title(row)
      n = row[:points].first[:n]
      n ? "#{row[:title].sub(/ (of|among) N\z/, '').sub(/\bN\b/, Format.size(n))}#{", N = #{Format.size(n)}" unless row[:title].match?(/\bN\b(?!\z)/)}" : row[:title]
    end

    # With one backend, the name of the library alone.
    def name(target)
      return target[:label] unless target[:kind] == "reactor"

      @targets.one? { |other| other[:kind] == "reactor" } ? "reactor" : target[:label]
    end

    # Where, when, how and with what it was measured.
    def foot
      about = @results.about
      backend = @targets.select { |target| target[:kind] == "reactor" }.map { |target| target[:name] }.join(", ")
      rounds = about[:rounds] == 1 ? "a single round" : "the median of #{about[:rounds]} rounds, the line is their span"
      libraries = @targets.filter_map { |target| target[:library] }.uniq.join(", ")
      ["#{about[:ruby][/\Aruby [\d.]+/i].capitalize}, #{about[:kernel]}, #{about[:processor]}, #{about[:cores]} cores, #{about[:date][/\A[\d-]+/]}: #{rounds}; " \
       "scale #{about[:scale]}, load average #{about[:load]}.", "#{libraries}; backend #{backend}.", about[:note]].compact.flat_map { |line| wrap(line) }
    end

    def wrap(line) = line.scan(/\S.{0,#{@columns * WRAP}}(?=\s|\z)/)

    def rule(y) = %(<path d="M0 #{y}H#{@width}" stroke="#{@colours[:rule]}"/>)

    def label(x, y, words, colour, size, weight: 400)
      %(<text x="#{x}" y="#{y}" font-size="#{size}" font-weight="#{weight}" fill="#{@colours[colour]}">#{CGI.escapeHTML(words)}</text>)
    end
  end
end

# frozen_string_literal: true

require_relative "plot"
require_relative "curves"
require_relative "bars"
require_relative "overview"

module Bench
  # The results as one page of HTML that needs nothing else: a plot and a table for each row.
  class Page
    OURS = %w[c0 c1 c2].freeze
    PEERS = %w[p0 p1 p2 p3].freeze
    COLUMNS = { "CPU us" => :cpu_us, "switches" => :switches, "system calls" => :calls, "objects" => :objects }.freeze
    PARTS = %i[variation gc].freeze
    LATENCIES = { "p50 us" => :p50, "p99 us" => :p99, "p99.9 us" => :p999, "worst us" => :max }.freeze

    def initialize(results)
      @results = results
      @palette = colours
    end

    def text
      <<~HTML
        <!doctype html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <title>reactor: what each workload costs</title>
        <style>
        #{File.read(File.join(__dir__, 'page.css'))}</style>
        </head>
        <body><main>
        #{heading}
        #{legend}
        #{overview}
        <h2>Each workload</h2>
        <p>#{bars}#{dashed}#{dotted}</p>
        <div class="rows">
        #{@results.rows.map { |row| card(row) }.join("\n")}
        </div>
        #{failures}
        </main></body>
        </html>
      HTML
    end

    private

    # A class of page.css for each target: by kind, so that one keeps its colour from page to page.
    def colours
      kinds = { "reactor" => OURS.cycle, "peer" => PEERS.cycle, "threads" => ["t"].cycle, "baseline" => ["kf"].cycle, "plain" => ["kp"].cycle }
      fixed = { "epoll" => "c0", "kqueue" => "c0", "uring" => "c1", "poll" => "c2" }
      @results.targets.to_h { |target| [target[:name], fixed[target[:name]] || kinds.fetch(target[:kind]).next] }
    end

    def h(text) = Plot.h(text)

    def heading
      about = @results.about
      facts = { "Ruby" => about[:ruby], "Machine" => "#{about[:processor]}, #{about[:cores]} cores, #{about[:kernel]}, load average #{about[:load]}",
                "Rounds" => "#{about[:rounds] == 1 ? 'one' : "#{about[:rounds]}, targets in turn"}, each run a process of its own; scale #{about[:scale]}",
                "When" => "#{about[:date]}, #{about[:seconds]} s, revision #{about[:revision]}",
                "Libraries" => libraries.join(", "), "Absent" => @results.absent.map { |name| "#{name} (not asked for: --against #{name})" }.join(", "),
                "Note" => about[:note] }.reject { |_, value| value.to_s.empty? }
      list = facts.map { |name, value| "<dt>#{name}</dt><dd>#{h(value)}</dd>" }.join
      "<h1>What each workload costs</h1><p>The same plain Ruby on threads, on reactor, and on other fiber schedulers.</p>" \
        "<dl>#{list}<dt>Command</dt><dd><code>#{h(about[:command])}</code></dd></dl>"
    end

    def libraries = @results.targets.filter_map { |target| target[:library] }.uniq

    def bars = @results.about[:rounds] == 1 ? "Each bar is a single round." : "Bars are medians, the dots on them single rounds and the line their span."

    def dashed = (" Dashed is the baseline: the same traffic in one thread of Rust on raw epoll." if kind?("baseline"))

    def dotted = (" Dotted is Ruby doing as much without a scheduler." if kind?("plain"))

    def kind?(kind) = @results.targets.any? { |target| target[:kind] == kind }

    def legend
      marks = @results.targets.map do |target|
        next %(<span><i class="mark"></i>baseline: Rust on raw epoll</span>) if target[:kind] == "baseline"
        next %(<span><i class="mark faint"></i>Ruby without a scheduler</span>) if target[:kind] == "plain"

        %(<span><i class="#{@palette[target[:name]]}"></i>#{h(target[:label])}</span>)
      end
      %(<div class="legend">#{marks.join}</div>)
    end

    def overview
      wide, narrow = [Plot::Overview::WIDE, Plot::Overview::NARROW].map { |layout| Plot::Overview.new(@results, @palette, layout).svg }
      return "" if wide.empty?

      "<h2>At a glance</h2><p>Each row against the best that is not ours, threads or another scheduler: to the right is better, on a logarithmic axis." \
        "#{" The diamond is the baseline." if kind?("baseline")}</p><div class=\"rows\"><div class=\"card wide glance\"><div class=\"broad\">#{wide}</div><div class=\"narrow\">#{narrow}</div></div></div>"
    end

    def card(row)
      shown = @results.drawn(row[:points])
      better = row[:better] == "less" ? "lower is better" : "higher is better"
      plots = plots(row, shown)
      <<~HTML
        <section class="card#{' wide' if plots.size > 1}">
        <header><h3>#{h(row[:title])}</h3><span>#{h(row[:unit])}, #{better}</span></header>
        <p>#{h(row[:about])}.</p>
        #{absent(row)}<div class="pair">#{plots.map { |caption, svg| "<figure>#{svg}#{"<figcaption>#{h(caption)}</figcaption>" unless caption.empty?}</figure>" }.join}</div>
        <details><summary>What an operation used</summary><div class="scroll">#{row[:points].map { |point| table(row, point, shown) }.join}</div></details>
        </section>
      HTML
    end

    # What has no curve or bar at some size, with the reason.
    def absent(row)
      reasons = row[:points].flat_map do |point|
        @results.targets.reject { |target| %w[baseline plain].include?(target[:kind]) }.filter_map do |target|
          cell = @results.cell(point, target)
          [target[:label], "#{cell[:state] == 'left_out' ? cell[:words] : cell[:state]}", point[:n]] unless cell[:state] == "ok"
        end
      end
      return "" if reasons.empty?

      words = reasons.group_by { |label, why, _| "#{label} (#{why})" }.map do |name, group|
        sizes = group.filter_map(&:last)
        sizes.empty? ? name : "#{name} at N = #{sizes.map { |size| Format.size(size) }.join(', ')}"
      end
      %(<p class="absent">Absent: #{h(words.join('; '))}.</p>\n)
    end

    # Pairs of caption and drawing.
    def plots(row, shown)
      points = row[:points]
      return points.map { |point| [point[:n] ? "N = #{Format.size(point[:n])} #{row[:axis]}" : "", Plot::Bars.new(row, point, shown, @palette).svg] } if points.size == 1 || bars?(row)

      scaling = [["", Plot::Curves.scaling(row, shown, @palette)]]
      return scaling unless row[:latencies]

      scaling + points.map { |point| ["N = #{Format.size(point[:n])} #{row[:axis]}: how the latencies are distributed", Plot::Curves.distribution(row, point, shown, @palette)] }
    end

    # Two sizes that are two different things make no curve.
    def bars?(row) = row[:points].size == 2 && !row[:latencies] && row[:axis] !~ /parked/

    def table(row, point, shown)
      columns = { row[:unit] => :median, "variation" => :variation }.merge(COLUMNS, "in GC" => :gc)
      columns = columns.merge(LATENCIES) if point[:cells].any? { |_, cell| cell[:p50] }
      head = [point[:n] ? "N = #{Format.size(point[:n])}" : "", *columns.keys].map { |name| "<th>#{h(name)}</th>" }.join
      body = shown.map do |target|
        cell = @results.cell(point, target)
        cells = columns.values.map { |name| "<td>#{h(PARTS.include?(name) ? Format.percent(cell[name]) || '–' : Format.figure(cell[name]))}</td>" }
        cells = ["<td colspan=\"#{columns.size}\" class=\"#{cell[:state]}\">#{h(cell[:state].tr('_', ' '))}: #{h(cell[:words])}</td>"] unless cell[:state] == "ok"
        "<tr><td>#{h(target[:label])}</td>#{cells.join}</tr>"
      end
      "<table><thead><tr>#{head}</tr></thead><tbody>#{body.join}</tbody></table>"
    end

    def failures
      lost = @results.rows.flat_map do |row|
        row[:points].flat_map do |point|
          @results.targets.filter_map do |target|
            cell = @results.cell(point, target)
            "<li>#{h(target[:label])}, #{h(row[:title])}#{", N = #{Format.size(point[:n])}" if point[:n]}: #{h(cell[:state])}: #{h(cell[:words])}</li>" if %w[hang failed].include?(cell[:state])
          end
        end
      end
      lost.empty? ? "" : "<h2>What gave no result</h2><ul class=\"failed\">#{lost.join}</ul>"
    end
  end
end

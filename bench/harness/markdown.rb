# frozen_string_literal: true

module Bench
  # The results as Markdown: one table of all medians, then one of what each operation used.
  class Markdown
    def initialize(results)
      @results = results
    end

    def text
      [heading, table(["", "unit", *names], medians), "", "What an operation used: CPU in us / voluntary switches / system calls (– not counted), " \
       "and the coefficient of variation of the figure above.", "", table(["", *names], used), *growth, *latencies, *calls, *remarks].join("\n")
    end

    private

    def names = @results.targets.map { |target| target[:label] }

    def heading
      about = @results.about
      ["# bin/bench", "", "#{about[:ruby]}; #{about[:kernel]}, #{about[:processor]}, #{about[:cores]} cores; revision #{about[:revision]}.",
       "#{about[:rounds] == 1 ? 'A single round, a process each' : "#{about[:rounds]} interleaved rounds of one process each, medians"}; scale #{about[:scale]}; #{about[:date]}, `#{about[:command]}`, " \
       "#{about[:seconds]} s, load average #{about[:load]}.", "**Bold**: the best, the baseline aside. – left out, see the remarks.", *about[:note], ""].join("\n")
    end

    # Yields each row at each size, with its title.
    def lines
      @results.rows.flat_map do |row|
        row[:points].map do |point|
          title = point[:n] ? "#{row[:title]}, N = #{Format.size(point[:n])}" : row[:title]
          yield row, point, title
        end
      end
    end

    def cells(point) = @results.targets.map { |target| yield @results.cell(point, target) }

    def medians
      lines do |row, point, title|
        best = best(row, point)
        [title, "#{row[:unit]} #{row[:better] == 'less' ? '↓' : '↑'}", *cells(point) do |cell|
          figure = Format.figure(cell[:median])
          cell[:state] == "ok" ? (cell.equal?(best) ? "**#{figure}**" : figure) : { "left_out" => "–" }.fetch(cell[:state], cell[:state])
        end]
      end
    end

    def best(row, point)
      ran = @results.targets.reject { |target| %w[baseline plain].include?(target[:kind]) }.map { |target| @results.cell(point, target) }
      ran.select! { |cell| cell[:state] == "ok" }
      ran.public_send(row[:better] == "less" ? :min_by : :max_by) { |cell| cell[:median] }
    end

    def used
      lines do |_, point, title|
        [title, *cells(point) do |cell|
          next "–" unless cell[:state] == "ok"

          "#{%i[cpu_us switches calls].map { |name| Format.figure(cell[name]) }.join(' / ')}, #{Format.percent(cell[:variation]) || 'once'}"
        end]
      end
    end

    # What the largest size costs in parts of the smallest, and how much of it is collections of the VM.
    def growth
      rows = @results.rows.select { |row| row[:axis] && row[:points].size > 1 }.map do |row|
        [row[:title], *@results.targets.map { |target| grown(row[:points].map { |point| [point[:n], @results.cell(point, target)] }) }]
      end
      rows.empty? ? [] : ["", "From the smallest N to the largest that ran: the ratio of the figures, and the time in GC at the largest.", "", table(["", *names], rows)]
    end

    def grown(points)
      ran = points.select { |_, cell| cell[:state] == "ok" }
      return "–" if ran.size < 2 || ran.first.last[:median].zero?

      first, last = ran.first, ran.last
      "#{format('%.3f', last.last[:median].fdiv(first.last[:median]))} to #{Format.size(last.first)}#{", GC #{Format.percent(last.last[:gc])}" if last.last[:gc]}"
    end

    def latencies
      rows = lines do |_, point, title|
        next unless point[:cells].any? { |_, cell| cell[:p50] }

        [title, *cells(point) { |cell| cell[:p50] ? %i[p50 p99 p999 max].map { |name| Format.figure(cell[name]) }.join(" / ") : "–" }]
      end.compact
      rows.empty? ? [] : ["", "Latencies in us: p50 / p99 / p99.9 / worst.", "", table(["", *names], rows)]
    end

    # System calls by name, for the row that is about them.
    def calls
      @results.rows.select { |row| row[:counts_calls] }.flat_map { |row| row[:points] }.flat_map do |point|
        counted = @results.targets.select { |target| @results.cell(point, target)[:counted] }
        next [] if counted.empty?

        accounts = counted.map { |target| @results.cell(point, target)[:counted] }
        kinds = accounts.flat_map { |account| account[:names].keys }.uniq
        rows = kinds.map { |kind| ["`#{kind}`", *accounts.map { |account| format("%.4f", account[:names].fetch(kind, 0)) }] }
        rows << ["epoll_ctl in all, #{accounts.first[:runs].map { |size| Format.count(size) }.join(' / ')} requests",
                 *accounts.map { |account| account[:control].join(" / ") }]
        ["", "System calls per keep-alive request, by name.", "", table(["", *counted.map { |target| target[:label] }], rows)]
      end
    end

    def remarks
      words = lines do |_, point, title|
        @results.targets.filter_map do |target|
          cell = @results.cell(point, target)
          "- #{title}: #{target[:label]} #{cell[:state]}: #{cell[:words]}" unless %w[ok left_out].include?(cell[:state])
        end
      end.flatten
      reasons = left_out.map { |(label, why), rows| "- #{label}, #{why}: #{rows.join('; ')}" }
      seldom = "What did not run (the baseline, one thread of Rust on raw epoll, and Ruby alone, without a scheduler, have only some rows):"
      ["", seldom, "", *words, *reasons]
    end

    def left_out
      found = Hash.new { |hash, key| hash[key] = [] }
      lines do |_, point, title|
        @results.targets.each do |target|
          cell = @results.cell(point, target)
          found[[target[:label], cell[:words]]] << title if cell[:state] == "left_out" && !%w[plain baseline].include?(target[:kind])
        end
      end
      found
    end

    def table(header, rows)
      aligned = header.each_index.map { |index| index.zero? ? "---" : "---:" }
      [header, aligned, *rows].map { |row| "| #{row.map { |cell| cell.to_s.gsub('|', '\\|') }.join(' | ')} |" }.join("\n")
    end
  end
end

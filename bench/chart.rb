# frozen_string_literal: true

# Draws README's chart from results of bin/bench: docs/headline-light.svg, docs/headline-dark.svg, and both narrow, for phones.
#
#   bin/bench chart                          from docs/measured/headline.json
#   bin/bench chart BENCH.JSON [WORKLOAD…]   from new results, which replace that file; these workloads only, in this order
#   bin/bench chart BENCH.JSON … --cpu       of CPU time per operation, which other load on the machine changes less than the rate
require "json"
require_relative "support"
require_relative "harness/format"
require_relative "harness/results"
require_relative "harness/headline"

module Bench
  # The files of the chart.
  class Chart
    ROOT = File.expand_path("..", __dir__)
    DATA = "docs/measured/headline.json"

    # @return [Hash{String => String}] paths in the repository, and what belongs there
    def self.files(data)
      drawings = Headline::THEMES.keys.product([2, 1]).to_h do |theme, columns|
        ["docs/headline#{'-narrow' if columns == 1}-#{theme}.svg", Headline.new(Results.new(data), theme, columns: columns).text]
      end
      { DATA => "#{JSON.pretty_generate(data)}\n", **drawings }
    end

    def self.draw(source = File.join(ROOT, DATA), *workloads, cpu: false)
      files = files(Headline.slim(Results.load(source).data, workloads, cpu: cpu))
      files.each { |path, text| File.write(File.join(ROOT, path), text) }
      puts files.keys
    end
  end
end

if $PROGRAM_NAME == __FILE__
  begin
    cpu = ARGV.delete("--cpu")
    Bench::Chart.draw(*ARGV, cpu: !cpu.nil?)
  rescue ArgumentError => error
    abort "bin/bench chart: #{error.message}"
  end
end

# frozen_string_literal: true

require "json"
require_relative "row"

module Gems
  # The tables of docs/gems.md: the rows, and what bin/check gems has measured of them.
  class Page
    ROOT = File.expand_path("../..", __dir__)
    RESULTS = File.join(__dir__, "results.json")
    PATH = File.join(ROOT, "docs", "gems.md")
    TABLE = /(?<=^<!-- made by bin\/check gems -->\n).*?(?=^<!-- end of the tables -->$)/m
    WORDS = { works: "works", setting: "works with a setting", blocks: "blocks in C" }.freeze

    # Writes the results and the page.
    #
    # @param results [Hash]
    def self.record(results)
      File.write(RESULTS, "#{JSON.pretty_generate(results)}\n")
      new.write
    end

    def initialize(results = JSON.parse(File.read(RESULTS)))
      @results = results
    end

    def write = File.write(PATH, File.read(PATH).sub(TABLE) { to_s })

    def to_s = [table, advice, versions].join("\n")

    private

    # @return [Array<Array(Row, Hash)>] each row with its results
    def rows
      Gems.load_rows
      ROWS.map { |row| [row, @results.fetch("rows").fetch(row.name)] }
    end

    def table
      lines = rows.map do |row, result|
        "| #{[row.name, row.what, WORDS.fetch(row.verdict), *%w[plain with].map { |mode| at_once(result[mode]) }].join(" | ")} |\n"
      end
      <<~MARKDOWN.sub("ROWS\n", lines.join)
        | gem | operation | verdict | at once | with the setting, or `Reactor.offload` |
        |---|---|---|---|---|
        ROWS
      MARKDOWN
    end

    def at_once(outcome)
      case outcome && outcome["error"]
      when nil then outcome && outcome["overlap"]
      when "hangs" then "hangs"
      else "fails: `#{outcome["error"][/\A\w+(::\w+)*/]}`"
      end
    end

    def advice
      lines = rows.filter_map { |row, _| "- **#{row.name}**: #{"`#{row.setting}`. " if row.setting}#{row.advice}\n" if row.advice }
      "What to do:\n\n#{lines.join}"
    end

    def versions
      gems = rows.map { |row, result| "#{row.gem} #{result["version"]}" }.uniq
      servers = rows.filter_map { |_, result| "#{result["server"]} #{result["server_version"]}" if result["server_version"] }.uniq
      "Tried with Ruby #{@results["ruby"]} on `#{@results["backend"]}`: #{gems.join(", ")}. Servers: #{servers.join(", ")}.\n"
    end
  end
end

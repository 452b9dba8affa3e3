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

    def to_s = [unchanged, table, servers].join("\n")

    private

    # @return [Array<Array(Row, Hash)>] each row with its results
    def rows
      Gems.load_rows
      ROWS.map { |row| [row, @results.fetch("rows").fetch(row.name)] }
    end

    def of(verdict) = rows.select { |row, _| row.verdict == verdict && !row.adapter? }

    def unchanged
      lines = of(:works).map { |row, result| "- #{row.gem} #{result["version"]}: #{row.what}\n" }
      "These need no change:\n\n#{lines.join}"
    end

    def table
      lines = (of(:setting) + of(:blocks)).map do |row, result|
        "| #{["#{row.gem} #{result["version"]}", row.what, at_once(result), remedy(row)].join(" | ")} |\n"
      end
      <<~MARKDOWN.sub("ROWS\n") { lines.join }
        With what the last column says, these overlap, too:

        | gem | operation | at once, as it is | what to do |
        |---|---|---|---|
        ROWS
      MARKDOWN
    end

    def at_once(result)
      case result["error"]
      when nil then result["overlap"]
      when "hangs" then "hangs"
      else "fails: `#{result["error"][/\A\w+(::\w+)*/]}`"
      end
    end

    def remedy(row)
      adapter = ROWS.find { |other| other.gem == row.gem && other.adapter? } if row.verdict == :blocks
      [*("`#{row.setting}`" if row.setting), row.advice, *("or `#{adapter.setting}`" if adapter)].join(", ")
    end

    def servers
      servers = @results["servers"].map { |server, version| "#{server} #{version}" }
      "Ruby #{@results["ruby"]} on `#{@results["backend"]}`, with #{servers.join(", ")}.\n".gsub(/(.{1,140})[ \n]/, "\\1\n")
    end
  end
end

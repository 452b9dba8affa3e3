# frozen_string_literal: true

require_relative "../runner/step"
require_relative "../runner/counts"
require_relative "skips"

module Windows
  # A file of tests/ruby/, run by Windows' Ruby.
  class SuiteStep < Runner::Step
    def initialize(name, *command, skips:, **options)
      super(name, *command, **options)
      @skips = skips
    end

    # With the tests that are known to fail as skipped ones.
    def results = super.map { |result| @skips.judge(result) }

    def details
      listed = results.select { |result| result["listed"] }
      listed = listed.map { |result| "    | #{result["id"]} passes: take it from tests/windows/skips" }
      [super, *listed].join("\n")
    end

    private

    def finish
      @ended = now
      codes = results.map { |result| result["code"] }
      @tally = Runner::Tally.new(codes.count("."), codes.count { |code| "FE".include?(code) }, codes.count("S"))
      @tally.failed += 1 unless File.read(@log).scrub[/^(\d+) runs, /, 1].to_i == codes.size && codes.any?
    end
  end
end

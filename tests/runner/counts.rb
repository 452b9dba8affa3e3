# frozen_string_literal: true

require "json"

module Runner
  # What a step's log, or its file of results, says of the tests that ran.
  module Counts
    UNAVAILABLE = 77 # a step's exit status: it could not take place, and its last line says why

    class << self
      # A command that is itself the test.
      def check(step, status)
        return Tally.new(0, 0, 1) if status.exitstatus == UNAVAILABLE

        complete(status, status.success? ? Tally.new(1, 0, 0) : Tally.zero)
      end

      # cargo test
      def rust(step, status)
        sums = sum(step.log, /^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored/)
        complete(status, Tally.new(*sums))
      end

      # CRuby's own test runner.
      def conformance(step, status)
        return Tally.new(0, 0, 1) if status.exitstatus == UNAVAILABLE

        tests, failures, errors, skips = sum(step.log, /^(\d+) tests, \d+ assertions, (\d+) failures, (\d+) errors, (\d+) skips/, 4)
        complete(status, Tally.new(tests - failures - errors - skips, failures + errors, skips))
      end

      # Our own suite: a line of JSON for each test, and minitest's count of them, which has to agree.
      def ruby(step, status)
        codes = step.results.map { |result| result["code"] }
        tally = Tally.new(codes.count("."), codes.count { |code| "FE".include?(code) }, codes.count("S"))
        runs = sum(step.log, /^(\d+) runs, /, 1).first
        tally = Tally.new(tally.passed, [tally.failed, 1].max, tally.skipped) if runs != codes.size
        complete(status, tally)
      end

      # @return [Array<Hash>] id, code (`.`, `F`, `E`, `S`), seconds, and the reason of a skip
      def results(path) = File.foreach(path).map { |line| JSON.parse(line) }

      private

      # A command that failed without counting a failure (a crash, a lint) is one; so is one that ran no test.
      def complete(status, tally)
        nothing = tally.to_a.sum.zero?
        return tally if tally.failed.positive? || (status.success? && !nothing)

        Tally.new(tally.passed, 1, tally.skipped)
      end

      def sum(path, pattern, width = 3)
        File.foreach(path).filter_map { |line| line.scrub.match(pattern)&.captures&.map(&:to_i) }
            .reduce([0] * width) { |sums, numbers| sums.zip(numbers).map(&:sum) }
      end
    end
  end
end

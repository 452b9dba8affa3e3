# frozen_string_literal: true

require "json"

module Runner
  # Counts the tests of a step by its log or its file of results.
  module Counts
    UNAVAILABLE = 77 # exit status of a step that cannot run here; its last line is the reason

    class << self
      # A command that counts as one test.
      def check(step, status)
        return Tally.new(0, 0, 1) if status.exitstatus == UNAVAILABLE

        complete(status, status.success? ? Tally.new(1, 0, 0) : Tally.zero)
      end

      # cargo test
      def rust(step, status)
        sums = sum(step.log, /^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored/)
        complete(status, Tally.new(*sums))
      end

      # The test runner of CRuby.
      def conformance(step, status)
        return Tally.new(0, 0, 1) if status.exitstatus == UNAVAILABLE

        tests, failures, errors, skips = sum(step.log, /^(\d+) tests, \d+ assertions, (\d+) failures, (\d+) errors, (\d+) skips/, 4)
        complete(status, Tally.new(tests - failures - errors - skips, failures + errors, skips))
      end

      # bin/check conformance --wide: a known difference is neither passed nor failed.
      def wide(step, status)
        return Tally.new(0, 0, 1) if status.exitstatus == UNAVAILABLE

        passed, = sum(step.log, /^\w+: (\d+) of \d+ as plain/, 1)
        problems, = sum(step.log, /^(\d+) problems$/, 1)
        complete(status, Tally.new(passed, problems, 0))
      end

      # Our suite: a line of JSON for each test. Their number has to agree with the count of minitest.
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

      # A command that failed without a failed test (a crash, a lint) counts as one failure, and so does a run without a
      # test.
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

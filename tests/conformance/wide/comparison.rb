# frozen_string_literal: true

module Wide
  # One test that did not end as in plain Ruby.
  Difference = Struct.new(:backend, :file, :id, :outcome) do
    def test = "#{file} #{id}"
    def crash? = outcome.status == "crash"
    def to_s = "#{backend}: #{test}: #{outcome.status} #{outcome.message.to_s.lines.map(&:strip).join(" ")[0, crash? ? 8_000 : 400]}"
  end

  # Compares a file's tests on one backend with its plain run. CRuby's tests depend on time and load. So a test with an unknown
  # difference runs again: alone, and if it passes alone, after the other tests of its file once more. If it passes both
  # times, it did not fail because of the fiber. A crash needs no repetition. A known difference that does not show runs again
  # as well.
  class Comparison
    ENDED = %w[exit hang crash].freeze

    attr_reader :plain, :backend, :unknown

    # @return [Array<String>] the tests that ought to differ and do not
    attr_reader :stale

    # @param explained [#call] whether a difference is known
    # @param expected [#call] whether a test is known to differ each time
    # @param new_run [#call] makes a run of these tests only, or of the whole file
    def initialize(plain, backend, explained:, expected:, new_run:)
      @plain = plain
      @backend = backend
      @explained = explained
      @expected = expected
      @new_run = new_run
      @unknown = []
      @unsure = []
      @stale = []
      @stages = [:whole, :alone, :whole_again]
    end

    def file = @plain.file

    # Every test that differed in the first run.
    def found = @found || []

    # The tests that differed in the first run only.
    def once = @unsure

    # The tests that passed plainly.
    def tests = @plain.outcomes.select { |_, outcome| outcome.status == "passed" }.keys

    # @return [Run, nil] nil if nothing more has to run
    def next_run
      take(@run) if @run
      @run = case @stages.shift
             when :whole then @new_run.(nil)
             when :alone then @new_run.(again) unless again.empty?
             when :whole_again then @new_run.(nil) unless @unsure.empty?
             end
    end

    private

    def again = @unsure.map(&:id) + @stale

    def take(run)
      differences = differences(run)
      if @found.nil?
        @found = differences
        @unknown, @unsure = differences.reject(&@explained).partition(&:crash?)
        @stale = (tests - differences.map(&:id)).select { |id| @expected.("#{file} #{id}") }
      else
        @stale -= differences.map(&:id)
        repeated = differences.to_h { |difference| [difference.id, difference] }
        @unknown += @unsure.filter_map { |difference| repeated[difference.id] }
        @unsure = @unsure.reject { |difference| repeated.key?(difference.id) }
      end
    end

    # A test that was not run differs as well; one that ended its process also if it failed plainly.
    def differences(run)
      @plain.outcomes.filter_map do |id, plain|
        outcome = run.outcomes.fetch(id) { Outcome.new("missing", "it did not run", 0) }
        next unless plain.status == "passed" ? outcome.status != "passed" : ENDED.include?(outcome.status) && !ENDED.include?(plain.status)

        Difference.new(@backend, run.file, id, outcome)
      end
    end
  end
end

# frozen_string_literal: true

module Wide
  # One test that did not end as in plain Ruby.
  Difference = Struct.new(:backend, :file, :id, :outcome) do
    def test = "#{file} #{id}"
    def crash? = outcome.status == "crash"
    def to_s = "#{backend}: #{test}: #{outcome.status} #{outcome.message.to_s.lines.map(&:strip).join(" ")[0, 400]}"
  end

  # Compares a file's tests on one backend with its plain run. CRuby's tests depend on time and load. So a test with an unknown
  # difference runs again: alone, and if it passes alone, after the other tests of its file once more. If it passes both
  # times, it did not fail because of the fiber. A crash needs no repetition.
  class Comparison
    ENDED = %w[exit hang crash].freeze

    attr_reader :plain, :backend, :unknown

    # @param explained [#call] whether a difference is known
    # @param new_run [#call] makes a run of these tests only, or of the whole file
    def initialize(plain, backend, explained:, new_run:)
      @plain = plain
      @backend = backend
      @explained = explained
      @new_run = new_run
      @unknown = []
      @unsure = []
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
      @run = case (stage = @stages.shift)
             when :whole then @new_run.(nil)
             when :alone, :whole_again then @new_run.(stage == :alone ? @unsure.map(&:id) : nil) unless @unsure.empty?
             end
    end

    private

    def take(run)
      differences = differences(run)
      if @found.nil?
        @found = differences
        @unknown, @unsure = differences.reject(&@explained).partition(&:crash?)
      else
        again = differences.to_h { |difference| [difference.id, difference] }
        @unknown += @unsure.filter_map { |difference| again[difference.id] }
        @unsure = @unsure.reject { |difference| again.key?(difference.id) }
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

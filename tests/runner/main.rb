# frozen_string_literal: true

# Runs the tests. bin/test calls this after it has set up the machine.

require "etc"
require "tmpdir"
require_relative "counts"
require_relative "plan"
require_relative "queue"
require_relative "report"
require_relative "ruby"

module Runner
  ROOT = File.expand_path("../..", __dir__)

  class Main
    def initialize(arguments)
      @all = arguments.delete("--all")
      abort "unknown option #{arguments.grep(/\A-/).first} (there is: --all)" if arguments.any?(/\A-/)
      @plan = Plan.new(all: @all, names: arguments)
      @queue = Queue.new(Queue::PER_PROCESSOR * Etc.nprocessors)
      @report = Report.new($stdout)
    end

    # @return [Boolean] whether nothing failed
    def run
      rubies = @plan.selected(Ruby.all)
      @report.problem("no Ruby >= 3.3 with headers#{" (RUBY=#{ENV["RUBY"]})" if ENV["RUBY"]}") if rubies.empty?
      @compiled = rubies.to_h { |ruby| [@plan.compile(ruby), ruby] }
      @queue.add(@compiled.keys)
      @queue.add(@plan.rust)
      Dir.mktmpdir("reactor-tests") { |folder| @queue.run(folder) { |step| ended(step) } }
      report_tests_that_never_ran if @all
      @report.summary
    end

    private

    def ended(step)
      @report.ended(step, @queue)
      @queue.add(@plan.suites(@compiled[step])) if @compiled[step] && !step.failed?
    end

    # In CI every dependency is installed, so a test that is skipped in every part is an error.
    def report_tests_that_never_ran
      @report.never_ran.each do |reason, tests|
        text = "skipped in every part: #{tests.join(", ")} (#{reason})"
        ENV["CI"] ? @report.problem(text) : puts(text)
      end
    end
  end
end

Dir.chdir(Runner::ROOT)
exit Runner::Main.new(ARGV.dup).run

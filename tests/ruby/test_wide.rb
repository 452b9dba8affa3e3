# frozen_string_literal: true

require_relative "helper"
require "stringio"
require "tmpdir"
require_relative "../conformance/wide/main"

# bin/check conformance --wide itself, on a suite of a few tests: it reports what differs, and ends every process.
class TestWide < ReactorTest
  # As much of CRuby's test library as the runner uses.
  LIBRARY = <<~'RUBY'
    module Test
      module Unit
        class AssertionFailedError < Exception; end
        class PendedError < AssertionFailedError; end

        class TestCase
          SUITES = []
          attr_reader :__name__

          def self.inherited(suite) = SUITES << suite
          def initialize(name) = @__name__ = name
          def assert(value) = value || raise(AssertionFailedError, "not true")
          def run_test(name) = __send__(name)

          def run(runner)
            run_test(__name__)
            runner.record(self.class, __name__, 0, 0, nil)
            "."
          rescue Exception => error
            runner.record(self.class, __name__, 0, 0, error)
            "E"
          end
        end

        class AutoRunner
          class Runner
            def record(*) = nil
          end

          def self.run(_standalone, folder, arguments)
            load File.join(folder, arguments.last)
            TestCase::SUITES.each do |suite|
              suite.public_instance_methods.grep(/^test/).sort.each { |name| suite.new(name).run(Runner.new) }
            end
          end
        end
      end
    end
  RUBY

  # What differs in a fiber.
  PLAIN = "Fiber.current.blocking?"

  # Runs a suite with these tests, by method name, and with these lines of known differences.
  # @return [Array] whether the result is as expected, and the report
  def wide(tests, known = [])
    Dir.mktmpdir do |folder|
      write(folder, "source/tool/test/init.rb", LIBRARY)
      bodies = tests.map { |name, body| "def #{name}\n#{body}\nend\n" }
      write(folder, "source/test/sample.rb", "class Sample < Test::Unit::TestCase\n#{bodies.join}end\n")
      write(folder, "files", "# the files\n  sample.rb\n  absent.rb\n")
      write(folder, "known", known.map { |line| "#{line}\n" }.join)
      output = StringIO.new
      main = Wide::Main.new(File.join(folder, "source"), data: folder, more: 2, output: output, backends: [BACKEND.to_s])
      @good = main.run
      @report = output.string
    end
  end

  def write(folder, name, text)
    path = File.join(folder, name)
    FileUtils.mkdir_p(File.dirname(path))
    File.write(path, text)
  end

  def line(test, reason: "test | it wants the root fiber") = "all | all | sample.rb Sample##{test} | #{reason}"

  # For each case: the tests, those with a known difference, whether that is as expected, what the report says, and what it does
  # not name.
  {
    an_unknown_difference_fails:
      [{ test_a: "assert true", test_b: "assert #{PLAIN}" }, [], false,
       "UNKNOWN  #{BACKEND}: sample.rb Sample#test_b: failed Test::Unit::AssertionFailedError: not true", "Sample#test_a"],
    a_known_difference_that_is_gone_is_reported:
      [{ test_b: "assert true" }, ["test_b"], false, "STALE    #{BACKEND}: sample.rb Sample#test_b no longer differs"],
    a_failure_that_does_not_repeat_is_no_difference:
      [{ test_b: "return if #{PLAIN}\nFile.exist?('seen') || (File.write('seen', ''); raise 'the first time')" }, [], true,
       "once     #{BACKEND}: sample.rb Sample#test_b: error RuntimeError: the first time"],
    a_failure_that_needs_the_tests_before_it_is_a_difference:
      [{ test_a: "$before = true", test_b: "assert #{PLAIN} || !$before" }, [], false, "UNKNOWN  #{BACKEND}: sample.rb Sample#test_b"],
    a_hang_is_ended_and_the_tests_after_it_run:
      [{ test_a: "sleep unless #{PLAIN}", test_b: "assert true" }, [], false, "Sample#test_a: hang", "Sample#test_b"],
    after_a_crash_which_needs_a_line_that_says_so_the_other_tests_run:
      [{ test_a: "Process.kill(:KILL, Process.pid) unless #{PLAIN}", test_b: "assert true" }, ["test_a"], false,
       "Sample#test_a: crash SIGKILL (signal 9)", "Sample#test_b"],
    a_file_that_does_not_load_is_a_problem:
      [{ test_a: "end; def" }, [], false, "BROKEN   plain: sample.rb: exit"]
  }.each do |name, (tests, known, good, present, absent)|
    define_method("test_#{name}") do
      wide(tests, known.map { |test| line(test) })
      assert_equal good, @good, @report
      assert_includes @report, present
      refute_includes @report, absent if absent
    end
  end

  def test_the_processes_of_a_test_are_ended
    skip "needs /proc" unless File.directory?("/proc/self")
    fifo = File.join(Dir.mktmpdir, "fifo")
    File.mkfifo(fifo)
    held = Thread.new { File.open(fifo, "r") }
    # The child is in a process group of its own, and holds the FIFO open for as long as it lives.
    wide({ test_a: "Process.detach(spawn('sleep', '1000', pgroup: true, out: #{fifo.dump})) unless #{PLAIN}" })
    assert @good, @report
    assert_nil track(held.value).read(1)
  ensure
    FileUtils.rm_rf(File.dirname(fifo))
  end

  def test_a_line_that_is_none_is_refused
    assert_raises(ArgumentError) { Wide::Known.new(["all | all | test"]) }
    assert_raises(ArgumentError) { Wide::Known.new([line("test_a", reason: "perhaps | a reason")]) }
  end

  def test_the_files_of_known_differences_are_valid
    folder = File.join(ROOT, "tests/conformance/wide")
    files = File.readlines(File.join(folder, "files"), chomp: true).grep_v(/\A#/).map { |line| line[1..].strip }
    tests = Wide::Known.read(File.join(folder, "known")).lines.map(&:test)
    assert_empty(tests.reject { |test| files.include?(test[/\A\S+/]) })
  end
end

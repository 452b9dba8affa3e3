# frozen_string_literal: true

require_relative "helper"
require "stringio"
require "tmpdir"
require_relative "../conformance/wide/main"

# bin/conformance --wide itself, on a suite of a few tests: what differs is reported, and every process is ended.
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
  # @return [Array] whether it is as expected, and the report
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

  def known(test, rubies: "all", reason: "test | it wants the root fiber") = "#{rubies} | all | sample.rb Sample##{test} | #{reason}"

  def test_a_suite_without_a_difference_passes
    wide({ test_a: "assert true", test_b: "sleep 0.001" })
    assert @good, @report
    assert_includes @report, "#{BACKEND}: 3 of 3 as plain" # the third: the process has ended well
  end

  def test_an_unknown_difference_fails
    wide({ test_a: "assert true", test_b: "assert #{PLAIN}" })
    refute @good
    assert_includes @report, "UNKNOWN  #{BACKEND}: sample.rb Sample#test_b: failed Test::Unit::AssertionFailedError: not true"
    refute_includes @report, "Sample#test_a"
  end

  def test_a_known_difference_passes_with_its_reason
    wide({ test_b: "assert #{PLAIN}" }, [known("test_b")])
    assert @good, @report
    assert_includes @report, "Sample#test_b: failed (test: it wants the root fiber)"
  end

  def test_a_known_difference_that_is_gone_is_reported
    wide({ test_b: "assert true" }, [known("test_b")])
    refute @good
    assert_includes @report, "STALE    #{BACKEND}: sample.rb Sample#test_b no longer differs"
  end

  def test_a_known_difference_that_is_absent_once_is_not_gone
    wide({ test_b: "return if #{PLAIN}\nFile.exist?('seen') ? raise('not the first time') : File.write('seen', '')" }, [known("test_b")])
    assert @good, @report
  end

  def test_a_test_that_fails_plainly_is_not_compared
    wide({ test_a: "assert true", test_b: "raise 'always'", test_c: "raise Test::Unit::PendedError, 'not here'" })
    assert @good, @report
    assert_includes @report, "plain: 1 error, 2 passed, 1 skipped"
  end

  def test_a_failure_that_does_not_repeat_is_no_difference
    wide({ test_b: "return if #{PLAIN}\nFile.exist?('seen') || (File.write('seen', ''); raise 'the first time')" })
    assert @good, @report
    assert_includes @report, "once     #{BACKEND}: sample.rb Sample#test_b: error RuntimeError: the first time"
  end

  def test_a_failure_that_needs_the_tests_before_it_is_a_difference
    wide({ test_a: "$before = true", test_b: "assert #{PLAIN} || !$before" })
    refute @good
    assert_includes @report, "UNKNOWN  #{BACKEND}: sample.rb Sample#test_b"
  end

  def test_a_hang_is_ended_and_the_tests_after_it_run
    wide({ test_a: "sleep unless #{PLAIN}", test_b: "assert true" })
    refute @good
    assert_includes @report, "Sample#test_a: hang"
    refute_includes @report, "Sample#test_b"
  end

  def test_after_a_crash_the_other_tests_run
    wide({ test_a: "Process.kill(:KILL, Process.pid) unless #{PLAIN}", test_b: "assert true" }, [known("test_a")])
    refute @good, "a crash needs a line that says so"
    assert_includes @report, "Sample#test_a: crash SIGKILL (signal 9)"
    refute_includes @report, "Sample#test_b"
    wide({ test_a: "Process.kill(:KILL, Process.pid) unless #{PLAIN}" }, [known("test_a (crash)")])
    assert @good, @report
  end

  def test_a_file_that_does_not_load_is_a_problem
    wide({ test_a: "end; def" })
    refute @good
    assert_includes @report, "BROKEN   plain: sample.rb: exit"
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

  def test_a_star_stands_for_any_test
    wide({ test_a: "assert #{PLAIN}", test_b: "assert #{PLAIN}", test_c: "assert true" }, [known("test_[ab]* (sometimes)")])
    assert @good, @report
    assert_includes @report, "2 known differences"
  end

  def test_a_line_that_is_none_is_refused
    assert_raises(ArgumentError) { Wide::Known.new(["all | all | test"]) }
    assert_raises(ArgumentError) { Wide::Known.new([known("test_a", reason: "perhaps | a reason")]) }
  end

  def test_the_files_of_known_differences_are_valid
    folder = File.join(ROOT, "tests/conformance/wide")
    files = File.readlines(File.join(folder, "files"), chomp: true).grep_v(/\A#/).map { |line| line[1..].strip }
    tests = Wide::Known.read(File.join(folder, "known")).lines.map(&:test)
    assert_empty(tests.reject { |test| files.include?(test[/\A\S+/]) })
  end
end

# frozen_string_literal: true

require_relative "helper"
require "stringio"
require "tmpdir"
require_relative "../fuzz/main"

# bin/check fuzz itself: its programs, how it handles hung and crashed processes, and how it shrinks and prints a difference.
class TestFuzz < ReactorTest
  FUZZ = File.join(ROOT, "tests", "fuzz")
  SEEDS = (0...150)

  # A wait with a limit of one minute ends at once, but only in fibers of a scheduler.
  FAULT = <<~RUBY
    require "reactor"
    module Fault
      def io_wait(io, events, timeout = nil) = timeout == 60 ? false : super
    end
    Reactor::Scheduler.prepend(Fault)
  RUBY

  def setup
    super
    needs_linux("bin/check fuzz")
  end

  def program(*tasks, **options)
    Fuzz::Program.new({ ending: "finish", conductor: "fiber", handler: nil, shares: [], tasks: tasks }.merge(options))
  end

  def wait(kind, *ends, seconds: nil)
    by = ends.map { |what| { do: what, delay: 0, from: "here" } }
    { op: "wait", kind: kind, by: by, holder: "thread", seconds: seconds }
  end

  def guard(*body, cleanup: []) = { op: "guard", rescue: "all", body: body, ensure: cleanup }

  # The fault for the fuzzer to find, among other operations.
  def faulty
    program([wait("pipe.gets", "feed"), guard(wait("unix.recv", "feed"), { op: "fiber", body: [wait("tcp.wait_readable", "feed")] }), wait("sleep", seconds: 0.02)],
            [wait("tcp.readpartial", "eof"), wait("condition", "feed")])
  end

  # Runs the block with a Ruby file that each Ruby process loads first.
  def with_fault
    Dir.mktmpdir do |folder|
      File.write(File.join(folder, "fault.rb"), FAULT)
      before = ENV["RUBYOPT"]
      ENV["RUBYOPT"] = "-I#{LIB} -r#{folder}/fault.rb"
      yield folder
    ensure
      ENV["RUBYOPT"] = before
    end
  end

  def with_runner
    runner = Fuzz::Runner.new([BACKEND.to_s])
    yield runner
  ensure
    runner.close
  end

  def test_every_program_is_valid_data_and_valid_ruby
    SEEDS.each do |seed|
      program = Fuzz::Generator.program(seed)
      assert_equal program, Fuzz::Generator.program(seed), "the seed decides"
      assert_predicate program, :valid?
      assert_equal program, Fuzz::Program.parse(program.to_s)
      RubyVM::InstructionSequence.compile(Fuzz::Printer.source(program))
    end
  end

  def test_every_kind_of_wait_and_operation_comes_up
    ops = SEEDS.flat_map { |seed| Fuzz::Generator.program(seed).ops }
    assert_equal [], Fuzz::Generator::OPEN_ENDED - ops.map { |op| op[:kind] }
    assert_equal %w[call enumerator fiber files fork guard keep lock look nap offload raise share thread timeout wait],
                 ops.map { |op| op[:op] }.uniq.sort
    { slot: Fuzz::STATES.keys, source: Fuzz::FILES.keys, target: Fuzz::TARGETS.keys }.each { |key, all| assert_equal [], all - ops.map { |op| op[key] }, key }
    assert_equal %w[close eof feed gc kill raise reopen signal], ops.flat_map { |op| op[:by] || [] }.map { |step| step[:do] }.uniq.sort
  end

  # Each kind of wait, provided with its input, ends with the same value on threads and on the backend.
  def test_every_kind_of_wait_ends_when_it_is_fed
    with_runner do |runner|
      Fuzz::Generator::OPEN_ENDED.each do |kind|
        found = runner.differences(program([wait(kind, "feed")]))
        assert_equal [], found, "#{kind}: #{found ? found.map(&:actual) : "hangs on threads"}"
      end
    end
  end

  def test_a_hang_and_a_crash_are_outcomes_and_the_next_program_runs
    worker = Fuzz::WorkerProcess.new(BACKEND.to_s)
    good = program([wait("pop", "feed")])
    hang = worker.run(good, "lambda { |stage| stage.task(:a) { |a| a.wait(1) { sleep } } }", 0.5)
    assert_equal [true, []], [hang["hang"], hang["logs"]["a"]]
    assert_equal({ "crash" => Signal.list["SEGV"] }, worker.run(good, "lambda { |stage| Process.kill(:SEGV, Process.pid); sleep }", TEST_TIMEOUT))
    assert_equal ["1: :item", "returned"], worker.run(good, Fuzz::Printer.source(good), TEST_TIMEOUT)["logs"]["a"]
  ensure
    worker&.close
  end

  def test_a_planted_fault_is_found_and_shrunk_and_what_is_printed_shows_it_again
    with_fault do |folder|
      file = File.join(folder, "program.json")
      out = StringIO.new
      run = lambda do |json|
        File.write(file, json)
        Fuzz::Main.new(Fuzz::Main.options(["--program", file, "--backends", BACKEND.to_s]), out).run
      end
      refute run.(faulty.to_s)
      assert_equal ["a.wait(1) { r1.wait_readable(60) && :ready }"], out.string.scan(/a\.wait.*/), "one wait is left"
      smallest = out.string[/^program: (.*)/, 1]
      refute run.(smallest)
      ENV["RUBYOPT"] = nil
      assert run.(smallest), "without the fault"
    end
  end
end

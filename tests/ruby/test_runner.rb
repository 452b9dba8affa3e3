# frozen_string_literal: true

require_relative "helper"
require "stringio"
require "tmpdir"
require_relative "../runner/counts"
require_relative "../runner/queue"
require_relative "../runner/report"
require_relative "../runner/step"

# bin/test itself: every failure is counted, and the stacks of a hung process are logged.
class TestRunner < ReactorTest
  def step(*command, **options) = Runner::Step.new("a step", *command, **options)

  def ended(*steps)
    Dir.mktmpdir do |folder|
      queue = Runner::Queue.new(4)
      queue.add(steps)
      queue.run(folder) { |step| yield step if block_given? }
      steps.each { |step| @details = step.details if step.failed? }
    end
    steps
  end

  # Runs a test file with this text as bin/test does.
  def suite(text)
    Dir.mktmpdir do |folder|
      file = File.join(folder, "test_sample.rb")
      File.write(file, "require #{File.join(__dir__, "helper").dump}\nclass TestSample < ReactorTest\n#{text}\nend\n")
      ended(step(RbConfig.ruby, "-I", LIB, file, "-v", count: :ruby, env: { "REACTOR_BACKEND" => BACKEND.to_s, "REACTOR_REPEAT" => nil })).first
    end
  end

  def test_a_command_that_succeeds_or_fails_is_one_test
    good, bad = ended(step("true"), step("false"))
    assert_equal [1, 0, 0], good.tally.to_a
    assert_equal [0, 1, 0], bad.tally.to_a
  end

  def test_a_step_without_a_test_has_failed
    assert_equal [0, 1, 0], ended(step("true", count: :rust)).first.tally.to_a
    assert_equal [0, 1, 0], suite("").tally.to_a
  end

  def test_each_test_is_counted
    tally = suite("def test_good = pass\ndef test_bad = flunk\ndef test_broken = raise\ndef test_skipped = skip(\"why\")").tally
    assert_equal [1, 2, 1], tally.to_a
    assert_includes @details, "TestSample#test_bad"
    refute_includes @details, "test_good"
  end

  def test_what_windows_skips_is_skipped_in_one_process_too
    Dir.mktmpdir do |folder|
      skips = File.join(folder, "skips")
      File.write(skips, "TestSample#test_listed | no fork\n")
      hook = "require #{File.expand_path("../windows/skips", __dir__).dump}\nprepend Windows::Skips.new(#{skips.dump}).hook"
      assert_equal [1, 0, 1], suite("#{hook}\ndef test_listed = flunk\ndef test_other = pass").tally.to_a
    end
  end

  def test_cruby_s_tests_are_counted_by_backend
    report = "epoll: 10 of 12 as plain, 1 known differences, 1 unknown, 0 only once\npoll: 11 of 12 as plain, 1 known differences, 0 unknown, 0 only once"
    good, = ended(step("echo", "#{report}\n0 problems", count: :wide))
    bad, = ended(step("sh", "-c", "echo '#{report}\n1 problems'; exit 1", count: :wide))
    absent, = ended(step("sh", "-c", "echo 'no network'; exit 77", count: :wide))
    assert_equal [[21, 0, 0], [21, 1, 0], [0, 0, 1]], [good, bad, absent].map { |step| step.tally.to_a }
  end

  def test_a_process_that_dies_between_its_tests_has_failed
    assert_operator suite("def test_a = pass\ndef test_b = Process.kill(:KILL, Process.pid)").tally.failed, :>, 0
  end

  def test_a_hung_step_is_ended_and_its_stacks_are_logged
    hung, = ended(step("sleep", "1000", limit: 0))
    assert_predicate hung, :failed?
    assert_includes @details, "HUNG"
    assert_includes @details, "process #{hung.pid}"
  end

  # The results of a limit of 20 s, second by second, while its process runs for the given share of the time.
  def answers_of_limit(share, at_work: false)
    time = 0
    limit = TimeLimit.allocate
    limit.define_singleton_method(:now) { time }
    limit.define_singleton_method(:at_work?) { at_work }
    limit.define_singleton_method(:demand) { { "a thread" => time * share * 1_000_000_000 } }
    limit.send(:initialize, 20)
    (0..300).map { |second| time = second; limit.over? }
  end

  def test_the_limit_of_an_idle_process_is_extended_once_and_that_of_a_busy_one_to_the_maximum
    most = 20 * TimeLimit::MAX_EXTENSION
    assert_equal [21, most, most], [answers_of_limit(0), answers_of_limit(1), answers_of_limit(0, at_work: true)].map { |answers| answers.index(true) }
  end

  # On a busy machine, this process may have to wait between its last check and the end of the limit.
  def test_what_happened_just_before_the_limit_has_happened_in_time
    answers = [nil, :done]
    assert_equal :done, TimeLimit.new(0).until { answers.shift }
    assert_nil TimeLimit.new(0).until { nil }
    times = 0
    assert_equal 3, TimeLimit.new(TEST_TIMEOUT).until { (times += 1) == 3 && times }
  end

  def test_steps_run_after_their_dependencies_and_lanes_are_serial
    Dir.mktmpdir do |folder|
      order = File.join(folder, "order")
      write = ->(word) { ["sh", "-c", "echo #{word} >>#{order}"] }
      queue = Runner::Queue.new(4)
      queue.add([Runner::Step.new("last", *write.("last"), after: ["one", "a group"]), Runner::Step.new("one", *write.("one"))])
      queue.add([Runner::Step.new("two", *write.("two"), group: "a group", lane: :alone), Runner::Step.new("three", *write.("three"), group: "a group", lane: :alone)])
      queue.run(folder) { nil }
      assert_equal %w[one three two], File.readlines(order, chomp: true)[0..2].sort
      assert_equal "last", File.readlines(order, chomp: true).last
    end
  end

  def test_a_test_that_is_skipped_in_every_part_is_listed
    out = StringIO.new
    report = Runner::Report.new(out)
    Dir.mktmpdir do |folder|
      rows = { "A" => [%w[both S], %w[never S]], "B" => [%w[both .], %w[never S]] }
      rows.each do |part, tests|
        lines = tests.map { |id, code| { id: id, code: code, seconds: 0, reason: ("for a reason" if code == "S") }.to_json }
        code = "File.write(ENV.fetch(\"REACTOR_RESULTS\"), #{lines.join("\n").dump}); puts \"2 runs, \""
        queue = Runner::Queue.new(1)
        queue.add([Runner::Step.new(part, RbConfig.ruby, "-e", code, count: :ruby)])
        queue.run(folder) { |step| report.ended(step, queue) }
      end
    end
    assert_equal({ "for a reason" => ["never"] }, report.never_ran)
    report.summary
    assert_includes out.string, "skipped: for a reason (3, ran in B)"
    assert_equal "1 passed, 0 failed, 3 skipped", out.string.lines.last.chomp
  end
end

# frozen_string_literal: true

require_relative "helper"
require "reactor/testing"

# Reactor.deadline and Reactor.remaining.
class TestDeadline < ReactorTest
  Exceeded = Reactor::DeadlineExceeded

  def virtual(&block) = Reactor::Testing.virtual_time(&block)

  def test_a_block_in_time_has_its_value_and_knows_what_is_left
    assert_equal [:value, 2.0, 0.5, nil], virtual { [Reactor.deadline(2) { sleep 1; :value }, *Reactor.deadline(2) { [Reactor.remaining, (sleep 1.5; Reactor.remaining)] }, Reactor.remaining] }
    assert_equal [7, nil], virtual { Reactor.deadline(nil) { [7, Reactor.remaining] } }
  end

  def test_without_a_scheduler_it_is_a_timeout
    queue = Thread::Queue.new
    ended = run_plain do
      Reactor.deadline(60) { queue << Reactor.remaining }
      [-> { Reactor.deadline(ms(1)) { sleep } }, -> { Reactor.deadline(0) { sleep } }, -> { Reactor.deadline(ms(1)) { Reactor.deadline(Float::INFINITY) { sleep } } },
       -> { Reactor.deadline(ms(1)) { begin; Reactor.deadline(60) { sleep }; rescue Exceeded; flunk; end } }].each { |call| assert_raises(Exceeded, &call) }
      Reactor.remaining
    end
    assert_nil ended
    assert_in_delta 60, queue.pop, 59
    name = nil
    run_plain { Reactor.deadline(ms(1), raises: false) { begin; sleep; rescue Reactor::Cancelled => error; name = error.class.name; raise; end } }
    assert_equal "reactor: cancelled", name, "full_message has a class"
  end

  def test_a_limit_that_has_already_elapsed_ends_the_block_at_its_first_wait
    virtual do |clock|
      [0, -1].each { |seconds| assert_equal 1, Reactor.deadline(seconds) { 1 } }
      [0, -1].each { |seconds| assert_raises(Exceeded) { Reactor.deadline(seconds) { assert_equal 0.0, Reactor.remaining; sleep 1 } } }
      assert_equal 0.0, clock.elapsed
    end
  end

  # --- one in another ----------------------------------------------------------------------------------------------

  def test_an_inner_deadline_ends_no_later_than_the_outer_one_whose_error_goes_through_it
    virtual do |clock|
      assert_equal [2.0, 2.0, 0.5], Reactor.deadline(2) { [Reactor.remaining, Reactor.deadline(10) { Reactor.remaining }, Reactor.deadline(0.5) { Reactor.remaining }] }
      assert_equal :inner, Reactor.deadline(5) { begin; Reactor.deadline(1) { sleep 3 }; rescue Exceeded; :inner; end }
      assert_nil assert_raises(Exceeded) { Reactor.deadline(1) { begin; Reactor.deadline(10) { sleep 3 }; rescue Exceeded; flunk; end } }.cause
      assert_raises(Exceeded) { Reactor.deadline(1) { begin; Reactor.deadline(1) { sleep 3 }; rescue Exceeded; flunk; end } }
      assert_raises(Exceeded) { Reactor.deadline(2) { begin; Reactor.deadline(1) { sleep 3 }; rescue Exceeded; sleep 3; end } }
      assert_equal 5.0, clock.elapsed
      assert_nil Reactor.remaining
    end
  end

  def test_fibers_and_tasks_inherit_it_and_so_do_threads_of_offload
    virtual do
      Reactor.deadline(2) do
        got = Thread::Queue.new
        sleep 0.5
        Fiber.schedule { got << Reactor.remaining }
        Reactor.group { |group| group.async { got << Reactor.remaining }; group.async { Reactor.deadline(10) { got << Reactor.remaining } } }
        assert_equal [1.5] * 3, Array.new(3) { got.pop }
      end
    end
    in_fiber { assert_includes 0.0..60.0, Reactor.deadline(60) { Reactor.offload { Reactor.remaining } } }
  end

  # Its group continues when the deadline ends.
  def test_a_deadline_in_a_task_of_an_outer_group_ends_by_itself
    virtual do
      Reactor.group do |group|
        task = nil
        assert_raises(Exceeded) { Reactor.deadline(1) { task = group.async { begin; Reactor.deadline(10) { never }; rescue Exceeded; :fallback; end }; never } }
        assert_equal :fallback, task.value
      end
    end
  end

  # A fiber that is not a task may outlive the block. The deadline applies to it as long as the block runs.
  def test_a_fiber_that_outlives_the_block_has_no_deadline_afterwards
    virtual do
      log = []
      ended = Thread::Queue.new
      Reactor.deadline(2) do
        Fiber.schedule do
          ended.pop
          log << Reactor.remaining << Reactor.deadline(10) { sleep 5; Reactor.remaining }
        end
        sleep 1
      end
      ended << true
      assert_raises(Exceeded) do
        Reactor.deadline(1) do
          Fiber.schedule { begin; Reactor.deadline(10) { sleep 5 }; rescue Exceeded; log << :bound; end }
          begin; sleep; ensure; sleep 1; end
        end
      end
      sleep 10
      assert_equal [nil, :bound, 5.0], log
    end
  end

  def test_where_the_outer_one_cannot_end_the_block_the_inner_one_does
    inner = -> { Reactor.deadline(60) { sleep } }
    in_fiber { Reactor.deadline(0.001) { Fiber.blocking { assert_raises(Exceeded, &inner) } } }
    needs_fork
    [method(:in_fiber), method(:run_plain)].each do |run|
      statuses = run.call do
        pid = Reactor.deadline(60) { fork { begin; Reactor.deadline(0.001) { sleep }; rescue Exceeded; exit!(7); end } }
        bound = nil
        seconds = 0.01
        until bound # in time
          begin
            Reactor.deadline(seconds) { bound = fork { begin; inner.call; rescue Exceeded; exit!(8); end } }
          rescue Exceeded
            seconds *= 2
          end
        end
        [pid, bound].map { |child| Process.wait2(child)[1].exitstatus }
      end
      assert_equal [7, 8], statuses
    end
  end

  def test_no_deadline_remains_when_the_block_is_left_in_another_way
    virtual do
      [-> { raise KeyError }, -> { throw :tag }].each { |leave| outcome { catch(:tag) { Reactor.deadline(1) { leave.call } } } }
      [1].each { Reactor.deadline(1) { break } }
      sleep 5
      assert_nil Reactor.remaining
    end
  end

  def test_a_killed_or_raised_fiber_leaves_no_timer
    %i[kill raise].each do |ending|
      run_scheduler do |scheduler|
        fiber = Fiber.schedule { begin; Reactor.deadline(3600) { sleep }; rescue IOError; nil; end }
        until_parked_in_root = Fiber.schedule { sleep 0; ending == :kill ? fiber.kill : fiber.raise(IOError) }
        scheduler.run
        refute_predicate until_parked_in_root, :alive?
      end
    end
  end

  def test_without_raises_an_inherited_deadline_raises_nothing_in_another_fiber
    virtual do |clock|
      log = []
      Reactor.deadline(2) { Fiber.schedule { log << Reactor.deadline(5, raises: false) { sleep } << clock.elapsed }; sleep 1.5 }
      Reactor.deadline(2) { Enumerator.new { |yielder| yielder << Reactor.deadline(1, raises: false) { sleep } }.next }.then { |value| log << value }
      assert_equal [nil, 2.0, nil], log
    end
  end

  # Each doubled the time, until fifty took months.
  def test_deadlines_in_deadlines_take_no_longer_than_those_beside_one_another
    nested = ->(depth) { depth.zero? ? 1 : Reactor.deadline(60) { nested.call(depth - 1) } }
    assert_equal 1, run_plain { nested.call(50) }
    assert_equal 1, in_fiber { nested.call(50) }
  end
end

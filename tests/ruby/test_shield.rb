# frozen_string_literal: true

require_relative "helper"
require "reactor/testing"

# Reactor.shield: what would end the block early takes effect when the block has ended.
class TestShield < ReactorTest
  # Each runs a block in which a shield is entered, and ends the block from outside while it waits. They raise what the block
  # would.
  ENDINGS = {
    cancel: lambda { |block|
      task = nil
      Reactor.group { |group| task = group.async { block.call }; Fiber.schedule { sleep 0.001; task.cancel } }
      task.state
    },
    group_cancel: ->(block) { Reactor.group { |group| group.async { block.call }; sleep 0.001; group.cancel } && :cancelled },
    failing_task: ->(block) { begin; Reactor.group { |group| group.async { sleep 0.001; raise KeyError }; block.call }; rescue KeyError; :cancelled; end },
    failing_sibling: ->(block) { begin; Reactor.group { |group| group.async { block.call }; group.async { sleep 0.001; raise KeyError } }; rescue KeyError; :cancelled; end },
    timeout: ->(block) { begin; Reactor.group(timeout: 0.001) { block.call }; rescue Timeout::Error; :cancelled; end },
    timeout_of_its_task: ->(block) { begin; Reactor.group(timeout: 0.001) { |group| group.async { block.call } }; rescue Timeout::Error; :cancelled; end },
    deadline: ->(block) { begin; Reactor.deadline(0.001) { block.call }; rescue Reactor::DeadlineExceeded; :cancelled; end },
    outer_group: ->(block) { begin; Reactor.group(timeout: 0.001) { Reactor.group { |group| group.async { block.call } } }; rescue Timeout::Error; :cancelled; end },
    break: ->(block) { [1].each { Reactor.group { |group| group.async { block.call }; sleep 0.001; break } }; :cancelled }
  }.freeze

  WAITS = {
    sleep: -> { sleep 0.01 }, queue: -> { Thread::Queue.new.pop(timeout: 0.01) },
    lock: -> { mutex = Thread::Mutex.new; Fiber.schedule { mutex.synchronize { sleep 0.01 } }; mutex.synchronize { nil } },
    group: -> { Reactor.group(timeout: 60) { |group| group.map([1, 2]) { sleep 0.01 } } }, shield: -> { Reactor.shield { sleep 0.005 }; sleep 0.005 },
    enumerator: -> { Enumerator.new { |yielder| sleep 0.01; yielder << 1 }.next }, timeout: -> { Timeout.timeout(60) { sleep 0.01 } }
  }.freeze

  ENDINGS.each do |name, ending|
    define_method("test_#{name}_takes_effect_when_the_block_has_ended") do
      WAITS.each do |wait, call|
        log = []
        critical = lambda do
          log << :before
          value = Reactor.shield { call.call; sleep 0.002; log << :done; 5 }
          log << value # not reached
        ensure
          log << :ensured
        end
        # In virtual time, so that the end comes while it waits.
        Reactor::Testing.virtual_time { assert_equal :cancelled, ending.call(critical), wait }
        assert_equal %i[before done ensured], log, wait
      end
    end

    define_method("test_#{name}_takes_effect_at_the_next_wait_after_a_block_that_raises_or_throws") do
      { raise: -> { raise IOError }, throw: -> { throw :out } }.each do |way, leave|
        log = []
        critical = lambda do
          begin
            catch(:out) { Reactor.shield { sleep 0.01; leave.call } }
          rescue IOError
            log << :rescued
          end
          log << way
          Reactor.shield { log << :never }
        ensure
          Reactor.shield { sleep 0.001; log << :ensured }
        end
        Reactor::Testing.virtual_time { assert_equal :cancelled, ending.call(critical) }
        assert_equal [*(:rescued if way == :raise), way, :ensured], log
      end
    end
  end

  def test_a_block_that_ends_before_anything_comes_changes_nothing
    Reactor::Testing.virtual_time do |clock|
      assert_equal 5, Reactor.group(timeout: 3) { Reactor.shield { sleep 2; 5 } }
      assert_raises(Timeout::Error) { Reactor.group(timeout: 3) { Reactor.shield { sleep 2 }; sleep 2 } }
      assert_raises(Reactor::DeadlineExceeded) { Reactor.deadline(3) { Reactor.shield { sleep 2 }; assert_equal 1.0, Reactor.remaining; sleep 2 } }
      assert_equal 8.0, clock.elapsed
    end
    assert_equal :value, run_plain { Reactor.shield { :value } }
    assert_equal :value, run_scheduler { Reactor.shield { :value } }
  end

  def test_a_limit_that_has_elapsed_before_is_raised_before_the_block
    shield = proc { begin; Reactor.shield { flunk }; rescue StandardError; flunk; end }
    over = lambda do
      assert_raises(Timeout::Error) { Reactor.group(timeout: 0, &shield) }
      assert_raises(Timeout::Error) { Reactor.group(timeout: 0) { Reactor.group(&shield) } }
      assert_raises(Reactor::DeadlineExceeded) { Reactor.deadline(0, &shield) }
      assert_raises(Reactor::DeadlineExceeded) { Reactor.deadline(0.001) { nil while Reactor.remaining.positive?; shield.call } }
    end
    in_fiber { over.call }
    run_plain { over.call }
  end

  def test_the_lock_of_the_fiber_is_its_own_in_the_block
    in_fiber { mutex = Thread::Mutex.new; mutex.synchronize { Reactor.shield { assert_predicate mutex, :owned? } } }
  end

  def test_the_end_of_the_scheduler_and_ruby_s_timeout_are_not_held_back
    log = []
    in_fiber do
      begin; Timeout.timeout(0.001) { Reactor.shield { sleep } }; rescue Timeout::Error; log << :timeout; end
      fiber = Fiber.schedule { begin; Reactor.shield { sleep }; ensure; log << :kill; end }
      fiber.kill
      fiber = Fiber.schedule { begin; Reactor.shield { sleep }; rescue IOError; log << :raise; end }
      fiber.raise(IOError)
    end
    thread = Thread.new { Reactor.run { Reactor.group { |group| group.async { begin; Reactor.shield { log << :begun; sleep }; ensure; log << :thread; end } } } }
    sleep 0.001 until log.last == :begun
    until_asleep(thread)
    thread.kill
    join_or_fail(thread, TEST_TIMEOUT)
    assert_equal %i[timeout kill raise begun thread], log
  end

  # A deadline too short for the shield to begin shows nothing, so the next one is longer.
  def log_of_late_shield
    log = []
    seconds = 0.001
    until log.any?
      run_plain do
        assert_raises(Reactor::DeadlineExceeded) do
          Reactor.deadline(seconds) { yield -> { Reactor.shield { log << :begun; sleep 2 * seconds; log << :done }; sleep; log << :never } }
        end
      end
      seconds *= 2
    end
    log
  end

  def test_without_a_scheduler_a_deadline_is_held_back
    assert_equal %i[begun done], log_of_late_shield(&:call)
  end

  def test_a_deadline_around_a_run_ends_no_shield_in_it
    [->(block) { Reactor.group { |group| group.async(&block) } }, ->(block) { Reactor.run(&block) }].each do |open|
      assert_equal %i[begun done], log_of_late_shield(&open)
    end
  end

  def test_a_deadline_in_a_shield_ends_its_block_without_a_scheduler_too
    run_plain do
      assert_raises(Reactor::DeadlineExceeded) { Reactor.shield { Reactor.deadline(0.001) { sleep } } }
    end
  end

  # The deadline has ended the block; a second time it ends nothing.
  def test_a_shield_in_an_ensure_clause_of_a_late_block_runs
    log = []
    late = -> { assert_raises(Reactor::DeadlineExceeded) { Reactor.deadline(0.001) { begin; sleep; ensure; Reactor.shield { log << 1 }; end } } }
    run_plain(&late)
    in_fiber { late.call; Fiber.blocking { late.call } }
    assert_equal [1, 1, 1], log
  end

  # The clause of the cancellation is spared by the deadline that has elapsed. The Enumerator's fiber knows no clause, but is in the shield.
  def test_a_deadline_that_elapses_when_a_shield_begins_in_a_clause_ends_no_enumerator_in_it
    log = []
    Reactor::Testing.virtual_time do
      Reactor.group do |group|
        task = group.async do
          Reactor.deadline(2) do
            sleep
          ensure
            sleep 1
            Reactor.shield do
              Reactor.group { |inner| inner.async { sleep 1 } }
              log << Enumerator.new { |items| sleep 1; items << :first }.next
            end
            log << :after
          end
        end
        sleep 1
        task.cancel
      end
    end
    assert_equal %i[first after], log
  end

  def test_a_shield_in_a_fiber_that_the_task_has_resumed_delays_the_end_of_the_task
    log = []
    in_fiber do
      begun, go = Array.new(2) { Thread::Queue.new }
      shielded = -> { Reactor.shield { begun << true; go.pop; log << :whole }; begun.pop }
      [shielded, -> { Enumerator.new { |items| items << shielded.call }.next }, -> { Fiber.new(&shielded).resume }].each do |block|
        Reactor.group do |group|
          task = group.async do
            block.call
          ensure
            log << $!.class
          end
          begun.pop
          task.cancel
          go << true
          sleep 0
        end
      end
    end
    assert_equal [:whole, Reactor::Cancelled] * 3, log
  end
end

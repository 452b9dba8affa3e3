# frozen_string_literal: true

require_relative "helper"
require "reactor/testing"

# Fibers made by the program and suspended inside Timeout.timeout, an Enumerator's between two values for example. If the program
# drops them, nothing of them is left after a garbage collection.
class TestDroppedEnumerators < ReactorTest
  class Own < StandardError; end

  # How many are dropped. Stacks are scanned conservatively: stale data of an earlier call may keep a fiber alive, and its stack
  # the next one. So some may stay, but not most.
  SOME = 500
  FAR = TEST_TIMEOUT * 1000

  # Each makes a fiber that is suspended inside a timeout, and drops it.
  DROPS = {
    enumerator: -> { Enumerator.new { |y| Timeout.timeout(FAR) { loop { y << 1 } } }.next },
    own_fiber: -> { Fiber.new { Timeout.timeout(FAR, Own) { Fiber.yield } }.resume },
    nested_enumerators: lambda do
      inner = Enumerator.new { |y| Timeout.timeout(FAR) { y << 1 } }
      Enumerator.new { |y| Timeout.timeout(FAR) { y << inner.next } }.next
    end,
    after_a_wait: -> { Enumerator.new { |y| Timeout.timeout(FAR) { Thread.pass; sleep 0; y << 1 } }.next },
  }.freeze

  # An Enumerator between two values, with a time limit around them.
  def limited(seconds, error = Own) = Enumerator.new { |y| Timeout.timeout(seconds, error) { loop { y << 1 } } }

  def collect
    GC.start
    GC.compact if GC.respond_to?(:compact)
  end

  def fibers = ObjectSpace.each_object(Fiber).count(&:alive?)

  # The share of fibers and timers left by the block, which drops that many. It runs in a fiber that then ends, so that its stack
  # is not scanned any more. Ruby takes every address on a stack for a reference. A stale one may keep the fibers of one call of
  # the block alive, because their stacks hold addresses of one another, but not those of the next calls.
  def share_left_by(scheduler, dropped)
    GC.start
    before, left, total = [fibers, scheduler.stats[:timers]], nil, 0
    eventually(TEST_TIMEOUT / 2) do
      dropping = Fiber.schedule { yield }
      sleep 0.001 while dropping.alive?
      total += dropped
      GC.start
      sleep 0.001 # the scheduler polls
      left = [fibers, scheduler.stats[:timers]].zip(before).map { |now, earlier| now - earlier }
      left.max < total / 2
    end
    left.max.fdiv(total)
  end

  DROPS.each do |kind, drop|
    define_method(:"test_dropped_inside_a_timeout_neither_fiber_nor_timer_is_left_#{kind}") do
      in_fiber do |scheduler|
        assert_operator share_left_by(scheduler, SOME) { SOME.times { drop.call } }, :<, 0.5, "of fibers or timers"
      end
    end
  end

  def test_a_collection_takes_no_timeout_from_a_suspended_enumerator_that_is_kept
    log = nil
    run_in_virtual_time do
      kept = [limited(1), Enumerator.new { |y| Timeout.timeout(2, Own) { loop { sleep 0.001; y << 1 } } }]
      kept.each(&:next)
      collect
      assert_equal [1, 1], kept.map(&:next)
      collect
      log = kept.map { outcome { sleep } }
      assert_equal 2, kept.size
    end
    assert_equal [[:raised, Own]] * 2, log
  end

  # The fibers of later Enumerators, and of Fiber.schedule, get the addresses of collected ones.
  def test_fibers_that_come_after_dropped_ones_have_only_their_own_timeouts
    rounds = 50
    log = []
    run_in_virtual_time do
      rounds.times do |i|
        5.times { limited(FAR).next }
        GC.start(full_mark: (i % 10).zero?)
        later = Enumerator.new { |y| Timeout.timeout(5, ArgumentError) { y << 1; sleep 2; y << 2; sleep } }
        log << [later.next, later.next, outcome { later.next }]
        log << [Fiber.schedule { sleep 0.001 }, Fiber.schedule { log << outcome { Timeout.timeout(1, Own) { sleep } } }].size
        sleep 2
      end
    end
    expected = [[1, 2, [:raised, ArgumentError]], 2, [:raised, Own]]
    assert_equal expected.map { |entry| [entry, rounds] }.to_h, log.tally
  end

  def test_the_timeout_of_an_enumerator_that_moved_its_fiber_among_others_is_raised_in_its_owner
    skip "no compaction here" unless GC.respond_to?(:compact)
    log = []
    run_in_virtual_time do
      before = GC.auto_compact
      GC.auto_compact = true
      kept = Array.new(100) { limited(1) }
      kept.each { |enumerator| enumerator.next; limited(FAR).next }
      collect
      log = kept.map { |enumerator| [enumerator.next, outcome { sleep }] }
    ensure
      GC.auto_compact = before unless before.nil?
    end
    assert_equal({ [1, [:raised, Own]] => log.size }, log.tally)
  end

  def test_a_timeout_in_a_fiber_of_the_programs_own_ends_the_wait_of_an_enumerator_in_it
    waiting = -> { Fiber.new { outcome { Timeout.timeout(0.02, Own) { Enumerator.new { |y| collect; y << sleep }.next } } }.resume }
    assert_equal [run_plain(&waiting)] * 2, run_scheduler { Array.new(2) { waiting.call } }
  end

  def test_an_enumerator_inside_a_timeout_continues_after_it_has_raised_in_a_fiber_that_waits
    log = []
    run_scheduler do
      sleeper = Fiber.schedule { log << outcome { sleep } }
      Fiber.schedule { log << Enumerator.new { |y| Timeout.timeout(TEST_TIMEOUT) { sleeper.raise(Own); collect; y << 1 } }.next }
    end
    assert_equal [[:raised, Own], 1], log
  end

  def test_enumerators_may_be_dropped_after_their_scheduler_was_closed
    kept = nil
    run_scheduler do |scheduler|
      Fiber.schedule { kept = Array.new(50) { limited(FAR) }.each(&:next) }
      scheduler.run
      Fiber.set_scheduler(nil)
      assert_equal [1] * 50, kept.map(&:next)
    end
    kept = nil
    collect
    run_scheduler { Fiber.schedule { 50.times { DROPS[:enumerator].call }; collect; sleep 0.001 } }
  end
end

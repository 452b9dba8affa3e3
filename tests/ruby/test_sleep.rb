# frozen_string_literal: true

require_relative "helper"
require "reactor/testing"

# The kernel_sleep hook.
class TestSleep < ReactorTest
  def test_sleeps_overlap_and_end_in_order
    log = []
    due = {}
    run_scheduler do
      [3, 1, 2, 5, 4].each do |n|
        earliest = clock + n * 0.01
        Fiber.schedule { log << :begins; sleep n * 0.01; log << n }
        due[n] = [earliest, clock + n * 0.01]
      end
    end
    assert_equal [:begins] * 5, log.shift(5)
    assert_equal [1, 2, 3, 4, 5], log.sort
    log.combination(2) { |first, second| assert_operator due[first][0], :<=, due[second][1], "#{first} before #{second}" }
  end

  def test_sleep_is_never_too_short
    in_fiber do
      [0.0001, 0.001, 0.0015, 0.01, Rational(1, 300)].each { |t| assert_operator elapsed { sleep t }, :>=, t }
    end
  end

  # In virtual time the deadlines are exactly equal.
  def test_sleeps_with_equal_deadlines_end_in_order_of_arrival
    log = []
    run_plain do
      Reactor::Testing.virtual_time(backend: BACKEND) do
        under_stress { 20.times { |i| Fiber.schedule { sleep 0.01; log << i } } }
      end
    end
    assert_equal (0...20).to_a, log
  end

  def test_sleep_zero_yields_once
    log = []
    run_scheduler do
      Fiber.schedule { log << :a1; sleep 0; log << :a2 }
      Fiber.schedule { log << :b1; sleep(0.0); log << :b2 }
    end
    assert_equal %i[a1 b1 a2 b2], log
  end

  def test_unblock_ends_a_sleep_without_a_duration
    log = []
    run_scheduler do |scheduler|
      bare = Fiber.schedule { sleep; log << :bare }
      with_nil = Fiber.schedule { sleep(nil); log << :nil } if RUBY_VERSION >= "3.3"
      Fiber.schedule do
        log << :waking
        scheduler.unblock(nil, bare)
        scheduler.unblock(nil, with_nil)
      end
    end
    assert_equal %i[waking bare nil], log
  end

  # Descriptors are polled even if the event loop never sleeps.
  def test_fibers_that_yield_or_wake_each_other_starve_neither_timers_nor_descriptors
    skip_under_stress
    r, w = pipe
    ping, pong = Queue.new, Queue.new
    { yielding: ->(done) { 3.times { Fiber.schedule { sleep 0 until done.size == 2 } } },
      waking: lambda do |done|
        Fiber.schedule { while ping.pop do pong << true end }
        Fiber.schedule { until done.size == 2 do ping << true; pong.pop end; ping << nil }
      end }.each do |name, busy|
      done = []
      run_scheduler do
        Fiber.schedule { r.readpartial(1); done << :io }
        Fiber.schedule { sleep 0.01; done << :timer }
        w << "x"
        busy.call(done)
      end
      assert_equal %i[io timer], done.sort, name
    end
  end

  # Each ready fiber computes for a millisecond. An expired sleep does not wait for all of them.
  def test_an_expired_sleep_runs_before_ready_fibers
    skip_under_stress
    turns = 0
    passed = []
    run_scheduler do
      Fiber.schedule { 21.times { before = turns; sleep 0.001; passed << (turns - before) } }
      30.times { Fiber.schedule { until passed.size == 21 do compute(0.001); turns += 1; sleep 0 end } }
    end
    assert_operator passed.sort[10], :<, 10, "turns of 1 ms in a sleep of 1 ms, while 30 fibers are ready"
  end

  # Fiber.schedule never parks its caller.
  def test_a_fiber_that_keeps_scheduling_fibers_does_not_starve_a_timer
    skip_under_stress
    ticks = 0
    seen = nil
    run_scheduler do
      Fiber.schedule { until seen do sleep 0.001; ticks += 1 end }
      Fiber.schedule { 60.times { Fiber.schedule { compute(0.001) } }; seen = ticks }
    end
    assert_operator seen, :>, 3, "sleeps of 1 ms, while a fiber started 60 that compute for 1 ms"
  end
end

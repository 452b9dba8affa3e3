# frozen_string_literal: true

require_relative "helper"
require "reactor/testing"

# A scheduler's measurements of its loop: how long it sleeps, how long turns are, how late timers end.
class TestHealth < ReactorTest
  H = Reactor::Histogram

  # --- histograms ------------------------------------------------------------------------------------------------

  def histogram(*seconds) = H.new.tap { |histogram| seconds.each { |duration| histogram.record(duration) } }

  def test_percentiles_are_too_long_by_a_sixteenth_at_most
    random = Random.new(7)
    durations = Array.new(5000) { (10**random.rand(-6.0..2.0)).round(6) }
    found = histogram(*durations)
    sorted = durations.sort
    [0.01, 0.5, 0.9, 0.99, 1].each do |share|
      true_one = sorted[(share * sorted.size).ceil - 1]
      assert_operator found.percentile(share), :>=, true_one
      assert_operator found.percentile(share), :<=, (true_one * 17 / 16) + 1.1e-6
    end
    assert_equal [5000, sorted.last], [found.count, found.max]
    assert_in_delta durations.sum, found.sum, 1e-6
    20.times { |power| assert_equal(sorted.count { |duration| (duration * 1e6).to_i < 2**power }, found.below(2**power / 1e6)) }
  end

  def test_histograms_are_subtracted_and_added_without_an_object_for_each_bucket
    recorder = histogram(0.001, 5.0)
    before = recorder.snapshot
    [0.002, 0.003].each { |seconds| recorder.record(seconds) }
    between = recorder.snapshot - before
    assert_equal 2, between.count
    assert_in_delta 0.005, between.sum
    assert_operator between.max, :<=, 0.0032
    assert_equal 4, (between + before).count
    assert_equal [nil, nil, nil, 0], (before - before).then { |none| [none.max, none.mean, none.percentile(0.5), none.count] }
    assert_match(/\A#<Reactor::Histogram 2: mean 0.002500 s, p50 0.00/, between.inspect)
    allocated = GC.stat(:total_allocated_objects)
    _ = between + before
    _ = between - before
    assert_operator GC.stat(:total_allocated_objects) - allocated, :<, H::BUCKETS
  end

  # --- of a scheduler --------------------------------------------------------------------------------------------

  def test_the_extension_and_the_library_have_the_same_buckets
    run_scheduler do |scheduler|
      scheduler.histogram_rows.each_value { |counts, sum, max| assert_equal [H::BUCKETS, Integer, Integer], [counts.size, sum.class, max.class] }
      assert_includes scheduler.histogram_rows.keys, :turn
    end
  end

  def test_a_fiber_that_computes_makes_a_long_turn_and_late_timers
    run_scheduler do |scheduler|
      reader = Reactor::Health::Reader.new(scheduler)
      Fiber.schedule { sleep 0.001 }
      Fiber.schedule { compute(0.05) }
      scheduler.run
      health = reader.read
      assert_operator health.turns.max, :>=, 0.05
      assert_operator health.lateness.max, :>=, 0.048
      assert_equal 1, health.lateness.count
      assert_operator health.stats[:awake_ns], :>=, 50_000_000
      assert_operator health.utilization, :>, 0
    end
  end

  def test_a_loop_that_sleeps_is_asleep_and_its_turns_are_short
    run_scheduler do |scheduler|
      before = scheduler.health
      Fiber.schedule { sleep 0.005 until (scheduler.health - before).stats[:asleep_ns] >= 50_000_000 }
      scheduler.run
      health = scheduler.health - before
      assert_operator health.utilization, :<, 1
      assert_in_delta health.seconds, (health.stats[:awake_ns] + health.stats[:asleep_ns]) / 1e9
      # A turn that included the sleep would make the sum as long as the whole time. Counted since the loop was opened, because a
      # turn in progress at a reading is recorded after it, with the time it took before.
      life = scheduler.health
      assert_operator life.turns.sum, :<=, (life.stats[:awake_ns] / 1e9) + 0.001
    end
  end

  def test_a_sleep_in_progress_counts_for_another_thread
    run_scheduler do |scheduler|
      sleeper = Fiber.schedule { sleep }
      looker = Thread.new do
        before = scheduler.health
        eventually { (scheduler.health - before).stats[:asleep_ns] >= 20_000_000 }
      ensure
        scheduler.unblock(nil, sleeper)
      end
      scheduler.run
      assert looker.value
    end
  end

  def test_a_reader_takes_nothing_from_another_one
    run_scheduler do |scheduler|
      often, seldom = Array.new(2) { Reactor::Health::Reader.new(scheduler) }
      readings = Array.new(3) do
        5.times { Fiber.schedule { sleep 0.001 } }
        scheduler.run
        often.read
      end
      whole = seldom.read
      assert_equal 15, whole.stats[:fibers]
      assert_equal [5, 5, 5], readings.map { |reading| reading.stats[:fibers] }
      assert_equal [15, 15], [whole.lateness.count, readings.sum { |reading| reading.lateness.count }]
      assert_equal whole.turns.count, readings.sum { |reading| reading.turns.count }
    end
  end

  def test_waits_are_counted_by_hook
    r, = pipe
    run_scheduler do |scheduler|
      queue = Queue.new
      fibers = [
        Fiber.schedule { r.wait_readable }, Fiber.schedule { sleep 60 }, Fiber.schedule { sleep }, Fiber.schedule { queue.pop }
      ]
      assert_equal({ io: 1, sleep: 2, block: 1, other: 0 }, scheduler.health.waits)
      scheduler.unblock(nil, fibers.last)
      assert_equal({ io: 1, sleep: 2, block: 0, other: 0 }, scheduler.health.waits, "it is ready")
      assert_operator scheduler.stats[:ready], :>=, 1
      fibers.each(&:kill)
    end
  end

  def test_work_that_waits_for_a_worker_is_timed
    scheduler = nil
    run_plain do
      scheduler = Reactor::Scheduler.new(workers: 1)
      Fiber.set_scheduler(scheduler)
      release, begun = Array.new(2) { Thread::Queue.new }
      Fiber.schedule { scheduler.offload { begun << true; release.pop } }
      begun.pop
      Fiber.schedule { scheduler.offload { nil } } # there is no worker for it
      sleep 0.02
      release << true
      scheduler.run
    end
    assert_equal 2, scheduler.health.queue.count
    assert_operator scheduler.health.queue.max, :>=, 0.02
  end

  def test_jobs_of_the_native_pool_are_timed
    run_scheduler do |scheduler|
      before = scheduler.health
      Fiber.schedule { assert_raises(Errno::ECONNREFUSED) { TCPSocket.new("localhost", 1) } }
      scheduler.run
      health = scheduler.health - before
      assert_operator health.stats[:pool_ended], :>=, 1
      assert_equal health.stats[:pool_ended], health.queue.count
    end
  end

  def test_collections_in_a_turn_are_counted
    in_fiber do |scheduler|
      before = scheduler.stats[:gc_ns]
      collected = GC.total_time
      GC.start until GC.total_time > collected # which is counted in ticks on Windows
      collected = GC.total_time - collected
      assert_operator scheduler.stats[:gc_ns] - before, :>=, collected
    end
  end

  def test_in_virtual_time_no_timer_is_late_and_the_loop_is_measured_in_real_time
    scheduler = nil
    health = Reactor::Testing.virtual_time do
      scheduler = Fiber.scheduler
      before = scheduler.health
      sleep 3600
      scheduler.health - before
    end
    assert_equal [1, 0.0], [health.lateness.count, health.lateness.max]
    assert_operator health.seconds, :<, 3600
    assert_operator health.turns.sum, :<, 3600
  end

  def test_a_closed_scheduler_still_has_its_measurements
    scheduler = nil
    run_scheduler { |made| scheduler = made }
    scheduler.close
    assert_kind_of Float, scheduler.health.seconds
    assert_equal 0, scheduler.health.stats[:live]
  end
end

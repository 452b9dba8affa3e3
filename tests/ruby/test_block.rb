# frozen_string_literal: true

require_relative "helper"
require "monitor"

# The hooks block and unblock: mutexes, monitors, queues, condition variables and threads.
class TestBlock < ReactorTest
  def test_a_mutex_held_by_another_thread_parks_only_its_fiber
    mutex = Mutex.new
    log = []
    held = Queue.new
    release = Queue.new
    holder = Thread.new { mutex.synchronize { held << true; release.pop; log << :released } }
    held.pop
    run_scheduler do
      Fiber.schedule { mutex.synchronize { log << :locked } }
      Fiber.schedule { log << :others_run; release << true }
    end
    assert_equal %i[others_run released locked], log
  ensure
    holder&.join(TEST_TIMEOUT)
  end

  def test_a_monitor_is_reentrant_and_excludes_other_fibers
    monitor = Monitor.new
    log = []
    run_scheduler do
      2.times { |i| Fiber.schedule { monitor.synchronize { monitor.synchronize { log << i; sleep 0.002; log << i } } } }
    end
    assert_equal [0, 0, 1, 1], log
  end

  def test_a_full_sized_queue_parks_the_pushing_fiber
    queue = SizedQueue.new(2)
    log = []
    run_scheduler do
      Fiber.schedule { 5.times { |i| queue << i; log << [:in, i] }; queue.close }
      Fiber.schedule { while (item = queue.pop) do log << [:out, item]; sleep 0.001 end }
    end
    assert_equal (0...5).to_a, log.filter_map { |way, i| i if way == :out }
    filled = 0
    log.each { |way, _| filled += way == :in ? 1 : -1; assert_operator filled, :<=, 3 }
  end

  def test_condition_variable_times_out_and_is_signalled_by_a_thread
    mutex = Mutex.new
    condition = ConditionVariable.new
    ready = false
    in_fiber do
      assert_operator elapsed { mutex.synchronize { condition.wait(mutex, 0.02) } }, :>=, 0.02
      thread = Thread.new { mutex.synchronize { ready = true; condition.signal } }
      mutex.synchronize { condition.wait(mutex, TEST_TIMEOUT) until ready }
      thread.join
    end
    assert ready
  end

  def test_thread_join_and_value_park_only_their_fiber
    log = []
    first, second = Queue.new, Queue.new
    run_scheduler do
      Fiber.schedule { log << Thread.new { first.pop; :value }.value; second << true }
      Fiber.schedule { thread = Thread.new { second.pop }; assert_same thread, thread.join; log << :joined }
      Fiber.schedule { log << :other; first << true }
    end
    assert_equal %i[other value joined], log
  end

  # An unblock after the hook was entered ends the wait, even before the fiber is parked.
  def test_an_unblock_ends_one_block_and_is_not_saved
    in_fiber do |scheduler|
      fiber = Fiber.current
      thread = Thread.new { until_parked(scheduler, 1); 3.times { scheduler.unblock(:x, fiber) } }
      assert_equal true, scheduler.block(:x, 1_000_000)
      thread.join # the surplus unblocks arrive before it ends
      assert_operator elapsed { scheduler.block(:x, 0.02) }, :>=, 0.02, "the surplus unblocks do not end the next wait"
    end
  end

  def test_unblock_of_what_does_not_wait_here_is_ignored
    foreign = run_plain { Fiber.new { flunk } }
    run_scheduler do |scheduler|
      dead = Fiber.schedule { nil }
      [dead, Fiber.new { flunk }, foreign].each { |fiber| scheduler.unblock(nil, fiber) }
      [nil, 1, Object.new].each do |bad|
        assert_includes [[:value, nil], [:raised, TypeError]], outcome { scheduler.unblock(nil, bad); nil }
      end
      Fiber.schedule { sleep 0; scheduler.unblock(nil, dead) }
    end
  end

  def test_unblock_wakes_a_sleeping_scheduler_immediately
    rounds = STRESS ? 5 : 50 # by polling, this many rounds would exceed TEST_TIMEOUT
    queue, answers = Queue.new, Queue.new
    run_scheduler do
      sleeping = Thread.current
      Fiber.schedule { rounds.times { answers << queue.pop } }
      waker = Thread.new { rounds.times { |i| until_asleep(sleeping); queue << i; answers.pop } }
      Fiber.schedule { waker.join }
    end
    assert_empty answers
  end

  def test_a_contended_mutex_wakes_every_fiber_and_thread
    skip_under_stress
    mutex = Mutex.new
    count = 0
    threads = nil
    run_scheduler do
      100.times { Fiber.schedule { 20.times { mutex.synchronize { before = count; sleep 0 if rand < 0.1; count = before + 1 } } } }
      threads = Array.new(2) { Thread.new { 200.times { mutex.synchronize { before = count; Thread.pass; count = before + 1 } } } }
      Fiber.schedule { threads.each(&:join) }
    end
    assert_equal 100 * 20 + 400, count
  end

  # Delays the hooks: a wake-up before super is called must not be lost.
  class DelayedScheduler < Reactor::Scheduler
    ENTERED = Queue.new
    GO = Queue.new

    def block(...)
      delay
      super
    end

    def kernel_sleep(...)
      delay
      super
    end

    private def delay = Fiber.blocking { ENTERED << true; GO.pop }
  end

  def test_an_unblock_before_an_overridden_hook_calls_super_is_kept
    queue = Queue.new
    mutex, condition, flag = Mutex.new, ConditionVariable.new, false
    got = []
    thread = Thread.new do
      Fiber.set_scheduler(DelayedScheduler.new)
      Fiber.schedule { got << queue.pop }
      Fiber.schedule { mutex.synchronize { condition.wait(mutex) until flag; got << :signalled } }
      nil
    end
    DelayedScheduler::ENTERED.pop
    queue << :pushed
    DelayedScheduler::GO << true
    DelayedScheduler::ENTERED.pop
    mutex.synchronize { flag = true; condition.signal }
    DelayedScheduler::GO << true
    join_or_fail(thread, TEST_TIMEOUT)
    assert_equal %i[pushed signalled], got
  end

  # A duration that only Ruby code can convert.
  Duration = Struct.new(:convert) do
    def to_f = convert.call.to_f
    def divmod(_) = [convert.call, 0]
  end

  def test_an_unblock_while_the_limit_of_the_wait_is_converted_ends_the_wait
    waits = { block: ->(s, limit) { s.block(:blocker, limit) }, kernel_sleep: ->(s, limit) { s.kernel_sleep(limit) } }
    waits.each do |name, wait|
      in_fiber do |scheduler|
        fiber = Fiber.current
        wakers = {
          "itself" => -> { scheduler.unblock(:blocker, fiber) },
          "a thread" => -> { Thread.new { scheduler.unblock(:blocker, fiber) }.join },
          "a fiber" => -> { Fiber.schedule { scheduler.unblock(:blocker, fiber) } },
          "a fiber, and it has slept" => -> { Fiber.schedule { sleep 0; scheduler.unblock(:blocker, fiber) }; 3.times { sleep 0 } }
        }
        wakers.each { |waker, wake| assert wait.call(scheduler, Duration.new(-> { wake.call; 1_000_000 })) != false, "#{name}, #{waker}" }
        assert_equal false, scheduler.block(:blocker, Duration.new(-> { 0 })), "no unblock"
      end
    end
  end

  def test_a_push_while_the_limit_of_a_pop_is_converted_ends_the_pop
    queue = Queue.new
    got = nil
    conversions = 0
    run_scheduler do
      Fiber.schedule do
        # Ruby converts it before listing the fiber as waiting, the hook after that.
        got = queue.pop(timeout: Duration.new(-> { queue << conversions if (conversions += 1) == 2; 1_000_000 }))
      end
      Fiber.schedule { queue << :once if conversions == 1 }
    end
    assert_equal conversions == 1 ? :once : 2, got
  end

  def test_an_error_while_the_limit_is_converted_ends_the_wait_and_nothing_is_left_of_it
    in_fiber do |scheduler|
      wrong = Duration.new(-> { scheduler.unblock(:blocker, Fiber.current); raise IOError, "of the conversion" })
      assert_raises(IOError) { scheduler.block(:blocker, wrong) }
      assert_raises(IOError) { scheduler.kernel_sleep(wrong) }
      assert_equal false, scheduler.block(:blocker, 0.0)
    end
  end

  # In plain Ruby, only a walk over the objects of the process tells whether the blocker is hidden.
  def test_many_cancelled_waits_cost_few_walks_over_the_object_space
    walks = 0
    in_fiber do
      Reactor.group do |group|
        50.times { group.async { Thread::Queue.new.pop } }
        50.times { group.async { mutex = Thread::Mutex.new; Fiber.schedule { mutex.lock; sleep 0 }; mutex.lock } }
        TracePoint.new(:c_call) { |call| walks += 1 if call.method_id == :each_object }.enable { group.cancel; sleep 0 }
      end
    end
    assert_operator walks, :<=, 8
  end

  # A type checker wraps methods in code that rescues, and a rescue clears what the VM records along with a kill.
  def test_ruby_code_that_rescues_at_the_end_of_a_wait_does_not_stop_a_kill
    out = child_says(<<~'RUBY')
      Reactor.const_get(:VM).singleton_class.prepend(Module.new { def hand_on_mutex(blocker) = (Integer("x") rescue super) })
      Fiber.set_scheduler(Reactor::Scheduler.new)
      mutex, log = Mutex.new, []
      holder = Fiber.schedule { mutex.synchronize { Fiber.scheduler.block(:holder) } }
      killed = Fiber.schedule { mutex.lock; log << :locked }
      thrown = Fiber.schedule { catch(:out) { begin; mutex.lock; ensure; log << :unwound; end } }
      raised = Fiber.schedule { mutex.lock rescue log << $!.class }
      killed.kill
      raised.raise(IndexError)
      thrown.kill
      Fiber.scheduler.unblock(:holder, holder)
      Fiber.scheduler.run
      p log, mutex.locked?
    RUBY
    assert_equal "[IndexError, :unwound]\nfalse\n", out
  end
end

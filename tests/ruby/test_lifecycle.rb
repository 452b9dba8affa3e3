# frozen_string_literal: true

require_relative "helper"

# The life of a scheduler: new, run, close, replacement, threads, fork.
class TestLifecycle < ReactorTest
  def test_close_drains_and_may_be_called_twice
    log = []
    run_scheduler do |scheduler|
      refute_predicate scheduler, :closed?
      Fiber.schedule { sleep 0.005; log << :done }
      scheduler.close
      log << :after
      assert_predicate scheduler, :closed?
      assert_nil Fiber.scheduler
      scheduler.close
      scheduler.scheduler_close
    end
    assert_equal %i[done after], log
  end

  def test_setting_the_same_scheduler_again_leaves_a_closed_one
    run_scheduler do |scheduler|
      Fiber.set_scheduler(scheduler)
      assert_predicate scheduler, :closed?
      assert_raises(RuntimeError) { Fiber.schedule { sleep } }
    end
  end

  def test_collecting_an_unused_scheduler_leaks_nothing
    before = descriptors
    used = run_plain do
      all = Array.new(20) { Reactor::Scheduler.new }
      (descriptors - before).size.tap { all.clear }
    end
    # Stale references on stacks may keep some of them.
    assert eventually { GC.start; (descriptors - before).size <= used / 3 }, -> { (descriptors - before).inspect }
  end

  # The classes of the errors that every use of the scheduler raises. None of the blocks may run.
  def errors_of_uses(scheduler, io)
    uses = {
      fiber: -> { scheduler.fiber { flunk } },
      kernel_sleep: -> { scheduler.kernel_sleep(0.001) },
      block: -> { scheduler.block(nil, 0.001) },
      io_wait: -> { scheduler.io_wait(io, IO::READABLE, 0.001) },
      io_select: -> { scheduler.io_select([io], nil, nil, TEST_TIMEOUT) },
      timeout_after: -> { scheduler.timeout_after(1, RuntimeError) { flunk } },
      on_ready: -> { scheduler.on_ready(io) { flunk } },
      run: -> { scheduler.run }
    }
    uses.transform_values { |use| Fiber.new { outcome(&use).last }.resume }
  end

  def test_after_close_every_use_is_a_runtime_error
    run_scheduler do |scheduler|
      scheduler.close
      assert_raises(RuntimeError) { Fiber.schedule { nil } }
      errors = errors_of_uses(scheduler, pipe.first)
      assert_equal errors.transform_values { RuntimeError }, errors
      scheduler.unblock(nil, Fiber.current) # a late unblock must not raise
    end
  end

  def test_another_thread_may_only_unblock
    run_scheduler do |scheduler|
      Fiber.schedule { sleep 0 } # the first use binds the scheduler to this thread
      scheduler.run
      r, w = pipe
      errors = run_plain { errors_of_uses(scheduler, r).merge(close: outcome { scheduler.close }.last) }
      assert_equal errors.transform_values { ThreadError }, errors
      refute_predicate scheduler, :closed?
      log = []
      Fiber.schedule { log << r.readpartial(1) }
      w << "x"
      scheduler.run
      assert_equal ["x"], log, "the owner is not disturbed"
    end
  end

  def test_a_scheduler_set_on_another_thread_is_a_thread_error_there
    run_scheduler do |scheduler|
      log = []
      Fiber.schedule { sleep 0.02; log << :undisturbed }
      other = Thread.new do
        Thread.current.report_on_exception = false
        Fiber.set_scheduler(scheduler)
        Fiber.schedule { sleep }
      end
      assert_equal [:raised, ThreadError], outcome { other.value }
      refute_predicate scheduler, :closed?
      scheduler.run
      assert_equal [:undisturbed], log
    end
  end

  def test_a_scheduler_made_on_another_thread_is_used_by_the_one_that_sets_it
    scheduler = Thread.new { Reactor::Scheduler.new }.value
    log = []
    run_plain do
      Fiber.set_scheduler(scheduler)
      Fiber.schedule { sleep 0.001; log << :slept }
      scheduler.run
    end
    assert_equal [:slept], log
  end

  def test_a_closed_scheduler_is_not_notified_of_closes
    told = nil
    closed = run_scheduler { |scheduler| told = Reactor::Schedulers.list.include?(scheduler); scheduler }
    assert_equal [true, false], [told, Reactor::Schedulers.list.include?(closed)]
  end

  def test_io_pwrite_is_no_hook_where_ruby_calls_it_without_the_lock
    skip "Ruby calls it with the lock" if RUBY_VERSION >= "4.0"
    run_scheduler { |scheduler| refute_respond_to scheduler, :io_pwrite }
  end

  def test_a_forked_child_does_not_disturb_registrations
    needs_fork
    out = child_says(<<~'RUBY')
      pairs = Array.new(5) { IO.pipe }
      Fiber.set_scheduler(Reactor::Scheduler.new)
      pairs.each_with_index { |(r, _), i| Fiber.schedule { puts "#{i} #{r.readpartial(9)}" } }
      Fiber.schedule do
        Process.wait(fork { pairs.each { |pair| pair.each(&:close) } })
        pairs.each_with_index { |(_, w), i| w << "ok" }
      end
    RUBY
    assert_equal (0...5).map { |i| "#{i} ok" }, out.lines(chomp: true).sort
  end

  # The VM checks for a kill where methods return.
  def test_a_thread_that_is_killed_anywhere_in_the_end_of_its_scheduler_leaves_no_fiber_thread_or_descriptor
    steps, = kill_while_closing(nil)
    assert_operator steps, :>, 20
    (1..steps).each do |step|
      before, threads = descriptors, Thread.list
      _, log, scheduler, place = kill_while_closing(step)
      assert_equal [:cleaned_up], log, place
      assert_predicate scheduler, :closed?, place
      assert eventually { surplus_threads(threads).empty? }, -> { "#{place}: #{surplus_threads(threads).inspect}" }
      assert_equal [], leaked_descriptors(before), place
    end
  end

  # Another thread kills the one that closes its scheduler, at this step outside the fibers.
  def kill_while_closing(killed_at)
    log, scheduler, place, steps = [], nil, nil, 0
    path = File.join(File.realpath(File.join(__dir__, "../../lib")), "reactor")
    thread = Thread.new do
      Fiber.set_scheduler(scheduler = Reactor::Scheduler.new(stall: TEST_TIMEOUT))
      Fiber.schedule { wait_with_a_worker_and_an_own_thread(scheduler, log) }
      kill = TracePoint.new(:return, :c_return) do |event|
        next unless Fiber.current.blocking? && event.path.start_with?(path) && (steps += 1) == killed_at

        place = "killed at #{event.event} of #{event.method_id}, #{event.path}:#{event.lineno}"
        Thread.new(Thread.current, &:kill).join
      end
      kill.enable(target_thread: Thread.current) { Fiber.set_scheduler(nil) }
    end
    join_or_fail(thread, TEST_TIMEOUT)
    [steps, log, scheduler, place]
  end

  def wait_with_a_worker_and_an_own_thread(scheduler, log)
    scheduler.offload { nil }
    scheduler.run_on_own_thread { sleep 0.001 }
  ensure
    begin
      sleep 0.001
    ensure
      log << :cleaned_up
    end
  end

  # A suspended fiber keeps what its stack refers to, and that may be left from an earlier scheduler's fiber.
  def test_a_closed_scheduler_keeps_no_fiber
    require "objspace"
    run_plain do
      scheduler = Reactor::Scheduler.new
      Fiber.set_scheduler(scheduler)
      Fiber.schedule { sleep 0 }
      scheduler.close
      kept = ObjectSpace.reachable_objects_from(scheduler)
      assert_empty kept.grep(Reactor.const_get(:VM)::Starter) + (kept.grep(Fiber) - [Fiber.current])
    end
  end
end

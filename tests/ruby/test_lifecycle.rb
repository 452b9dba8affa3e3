# frozen_string_literal: true

require_relative "helper"

# The life of a scheduler: new, run, close, replacement, threads, fork, daemon; and that memory stays flat.
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

  def test_daemon_continues_in_the_forked_process
    needs_fork
    [false, true].each do |inside|
      r, w = IO.pipe
      code = <<~'RUBY'
        out = IO.for_fd(ARGV[0].to_i)
        out.sync = true
        life = lambda do
          Process.daemon(true, true)
          Thread.new do
            Fiber.set_scheduler(Reactor::Scheduler.new)
            Fiber.schedule { sleep 0.01; out << "daemon " }
          end.join
          out << "ends"
        end
        Fiber.set_scheduler(Reactor::Scheduler.new)
        Fiber.schedule { sleep 0.02; out << "not here " } # belongs to the process that daemon ends
        ARGV[1] == "true" ? Fiber.schedule(&life) : life.call
      RUBY
      run_child(code, w.fileno, inside, options: { w => w })
      w.close
      assert r.wait_readable(TEST_TIMEOUT)
      assert_equal "daemon ends", r.read, "inside a fiber: #{inside}"
    ensure
      [r, w].each(&:close)
    end
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

  IN_A_FIBER = [
    ->(&block) { block.call }, ->(&block) { Fiber.new(&block).resume },
    ->(&block) { Fiber.new { Enumerator.new { |items| items << block.call }.next }.resume },
    ->(&block) { Enumerator.new { |items| sleep 0; items << block.call }.next }
  ].freeze

  # A scheduler ended by one of its own fibers, or on behalf of one, would wait for that fiber.
  def test_a_fiber_cannot_end_its_own_scheduler
    log = []
    reader, writer = pipe
    run_scheduler do |scheduler|
      Fiber.schedule { log << reader.readpartial(1) }
      Fiber.schedule do
        %i[run close scheduler_close shutdown drain cancel].product(IN_A_FIBER) do |method, place|
          assert_raises(FiberError, method) { place.call { scheduler.public_send(method) } }
        end
        refute_predicate scheduler, :closed?
        sleep 0
        writer << "x"
      end
      scheduler.run
      log << scheduler.live
    end
    assert_equal ["x", 0], log
  end

  # Ruby removes the scheduler from the thread, whatever its hook has raised.
  def test_a_scheduler_that_one_of_its_fibers_removes_from_the_thread_continues
    log = []
    reader, writer = pipe
    run_scheduler do |scheduler|
      Fiber.schedule { log << reader.readpartial(1) }
      Fiber.schedule do
        sleep 0
        assert_raises(FiberError) { Fiber.set_scheduler(nil) }
        log << Fiber.scheduler
        writer << "x"
      end
      scheduler.run
      scheduler.close
    end
    assert_equal [nil, "x"], log
  end

  # 20,000 descriptors (REACTOR_LONG=1: a million) opened, waited for and dropped; some closed, some left to the collector.
  def test_memory_stays_flat_over_many_descriptors
    needs_linux "resident memory from /proc"
    count = LONG ? 1_000_000 : 20_000
    out = child_says(<<~RUBY, count, within: LONG ? 600 : 60)
      rss = -> { 3.times { GC.start }; File.read("/proc/self/status")[/VmRSS:\s+(\d+)/, 1].to_i }
      Fiber.set_scheduler(Reactor::Scheduler.new)
      count = Integer(ARGV[0])
      life = lambda do |n|
        pairs = Array.new(100) { IO.pipe }
        IO.select(pairs.map(&:first), nil, nil, 0.00001)
        pairs.each_with_index { |pair, i| pair.each(&:close) unless (i % 10).zero? }
      end
      Fiber.schedule do
        (count / 400).times(&life)
        before = rss.()
        (count / 200).times(&life)
        puts rss.() - before
        puts Fiber.scheduler.stats[:timers]
      end
    RUBY
    grown, left = out.lines(chomp: true)
    assert_operator grown.to_i, :<, 5_000
    assert_equal "0", left, "timers"
  end
end

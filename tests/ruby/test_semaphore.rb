# frozen_string_literal: true

require_relative "helper"
require "reactor/testing"

# Reactor::Semaphore and Reactor::RateLimit: in fibers and in threads. Nothing is lost, whoever is cancelled.
class TestSemaphore < ReactorTest
  def test_an_acquire_that_took_too_long_is_raised_once
    raised = []
    in_fiber do
      semaphore = Reactor::Semaphore.new(1)
      semaphore.acquire
      trace = TracePoint.new(:raise) { |point| raised << point.raised_exception.class }
      trace.enable(target_thread: Thread.current) do
        assert_raises(Reactor::DeadlineExceeded) { semaphore.acquire(timeout: 0) }
        assert_raises(Timeout::Error) { Timeout.timeout(0.001) { semaphore.acquire } }
      end
    end
    assert_equal [Reactor::DeadlineExceeded, Timeout::ExitException, Timeout::Error], raised
  end

  def test_what_the_release_raises_has_the_blocks_error_as_its_cause
    failing = Class.new(Reactor::Scheduler) { def unblock(...) = (super; raise "the release" if $!) }
    error = nil
    Thread.new do
      Fiber.set_scheduler(failing.new)
      Fiber.schedule do
        semaphore = Reactor::Semaphore.new(1)
        semaphore.acquire do
          Fiber.schedule { semaphore.acquire { nil } }
          raise "the block"
        end
      rescue RuntimeError => e
        error = e
      end
    end.join
    assert_equal ["the release", "the block"], [error.message, error.cause.message]
  end

  def test_no_more_than_its_permits_are_held_and_who_comes_first_gets_one_first
    held, most, arrived, order = 0, 0, [], []
    semaphore = Reactor::Semaphore.new(3)
    in_fiber do
      Reactor.group do |group|
        20.times { |i| group.async { arrived << i; semaphore.acquire { order << i; most = [most, held += 1].max; (i % 3).times { sleep 0 }; held -= 1 } } }
      end
    end
    assert_equal [3, arrived, 3, 0], [most, order, semaphore.available, semaphore.waiting]
  end

  def test_threads_and_fibers_share_one
    semaphore = Reactor::Semaphore.new(2)
    count = Thread::Queue.new
    held = Thread::Queue.new
    work = -> { 50.times { semaphore.acquire { held << 1; count << held.size; Thread.pass; held.pop } } }
    threads = Array.new(2) { Thread.new(&work) }
    in_fiber { Reactor.group { |group| 3.times { group.async { 50.times { semaphore.acquire { held << 1; count << held.size; sleep 0; held.pop } } } } } }
    threads.each { |thread| join_or_fail(thread, TEST_TIMEOUT) }
    assert_equal [250, 2], [count.size, semaphore.available]
    assert_operator Array.new(250) { count.pop }.max, :<=, 2
  end

  def test_the_ways_to_take_and_give
    semaphore = Reactor::Semaphore.new(2)
    assert_equal [true, :value, 1], [semaphore.acquire, semaphore.acquire { :value }, semaphore.available]
    assert_equal [true, false, false], [semaphore.try_acquire, semaphore.try_acquire, semaphore.try_acquire(timeout: 0.01)]
    assert_equal "no permit within 0 s", assert_raises(Reactor::DeadlineExceeded) { semaphore.acquire(timeout: 0) }.message
    assert_raises(Reactor::DeadlineExceeded) { semaphore.acquire(timeout: -1) { flunk } }
    assert_nil semaphore.release
    assert_raises(KeyError) { semaphore.acquire { raise KeyError } }
    assert_nil catch(:tag) { semaphore.acquire { throw :tag } }
    semaphore.release
    assert_raises(ThreadError) { semaphore.release }
    assert_equal [2, 2, "#<Reactor::Semaphore 2 of 2 available>"], [semaphore.available, semaphore.permits, semaphore.inspect]
  end

  def test_a_timeout_of_acquire_elapses
    Reactor::Testing.virtual_time do |clock|
      semaphore = Reactor::Semaphore.new(1)
      semaphore.acquire
      assert_raises(Reactor::DeadlineExceeded) { semaphore.acquire(timeout: 1) { flunk } }
      assert_equal [false, 2.0], [semaphore.try_acquire(timeout: 1), clock.elapsed]
      Fiber.schedule { sleep 1; semaphore.release }
      assert_equal [:got, 3.0, 1], [semaphore.acquire(timeout: 2) { :got }, clock.elapsed, semaphore.available]
    end
  end

  # A waiting fiber is ended before, with or after it is handed a permit; the other one gets the permit.
  ENDS = {
    cancel: ->(task, _) { task.cancel },
    kill: ->(_, fiber) { fiber.kill },
    raise: ->(_, fiber) { fiber.raise(IOError) }
  }.freeze

  ENDS.to_a.product(%i[before together after], [true, false]).each do |(name, ending), moment, in_block|
    define_method("test_a_waiter_that_ends_by_#{name}_#{moment}_loses_no_permit_#{in_block ? "in_a_block" : "alone"}") do
      in_fiber do |scheduler|
        semaphore = Reactor::Semaphore.new(1)
        semaphore.acquire
        got = []
        Reactor.group do |group|
          fiber = nil
          task = group.async do
            fiber = Fiber.current
            begin
              in_block ? semaphore.acquire { sleep 0.001 } : semaphore.acquire && semaphore.release
            rescue IOError
              nil
            end
          end
          group.async { semaphore.acquire { got << :second } }
          group.async { got << semaphore.acquire(timeout: 3600) { :third } }
          assert_equal 3, semaphore.waiting
          ending.call(task, fiber) if moment == :before
          semaphore.release
          ending.call(task, fiber) if moment == :together
          scheduler.yield if moment == :after
          ending.call(task, fiber) if moment == :after && fiber.alive?
        end
        assert_equal [%i[second third], 1, 0], [got, semaphore.available, semaphore.waiting]
      end
    end
  end

  # Threads are killed at any instruction.
  def test_threads_that_are_killed_in_a_block_lose_no_permit
    semaphore = Reactor::Semaphore.new(2)
    random = Random.new(5)
    20.times do
      threads = Array.new(6) { Thread.new { loop { semaphore.acquire(timeout: [nil, 0.0001].sample) { Thread.pass } rescue Reactor::DeadlineExceeded } } }
      threads.each { |thread| sleep random.rand * 0.0005; thread.kill }
      threads.each { |thread| join_or_fail(thread, TEST_TIMEOUT) }
      assert_equal [2, 0], [semaphore.available, semaphore.waiting]
    end
  end

  def test_threads_whose_time_limit_elapses_lose_no_permit_and_release_none_twice
    semaphore = Reactor::Semaphore.new(20)
    threads = Array.new(3) do |i|
      random = Random.new(i)
      Thread.new { 8.times { Timeout.timeout(0.001 + random.rand * 0.005) { loop { semaphore.acquire { nil } } } rescue Timeout::Error } }
    end
    threads.each { |thread| join_or_fail(thread, TEST_TIMEOUT) }
    assert_equal [20, 0], [semaphore.available, semaphore.waiting]
  end

  def test_a_release_in_an_ensure_clause_is_not_cut_by_a_timeout
    semaphore = Reactor::Semaphore.new(3)
    threads = Array.new(3) do |i|
      random = Random.new(i)
      Thread.new do
        300.times do
          semaphore.acquire
          Timeout.timeout(0.00001 + random.rand * 0.0002) { begin; 200.times { nil }; ensure; semaphore.release; end } # rubocop:disable Style/Semicolon
        rescue Timeout::Error
          nil
        end
      end
    end
    threads.each { |thread| join_or_fail(thread, TEST_TIMEOUT) }
    assert_equal 3, semaphore.available
  end

  def test_a_block_that_raises_thread_error_is_killed_without_losing_a_permit
    semaphore = Reactor::Semaphore.new(2)
    work = -> { loop { semaphore.acquire { raise ThreadError } rescue ThreadError } }
    threads = Array.new(4) { Thread.new(&work) }
    200.times { |i| threads[i % 4].kill; join_or_fail(threads[i % 4], TEST_TIMEOUT); threads[i % 4] = Thread.new(&work) }
    threads.each { |thread| join_or_fail(thread.kill, TEST_TIMEOUT) }
    assert_equal [2, 0], [semaphore.available, semaphore.waiting]
  end

  def test_a_stack_overflow_loses_no_permit
    semaphore = Reactor::Semaphore.new(1)
    again = -> { semaphore.acquire { 1 } && again.call }
    deep = ->(depth) { depth.zero? ? again.call : deep.call(depth - 1) }
    20.times do |depth|
      assert_raises(SystemStackError) { deep.call(depth) }
      assert_equal 1, semaphore.available
    end
  end

  def test_a_subclass_may_name_its_methods_as_it_likes
    named = Class.new(Reactor::Semaphore) { %i[count limit queue wait too_late].each { |name| define_method(name) { |*| flunk } } }.new(1)
    assert_equal 1, named.acquire(timeout: 1) { 1 }
    assert_raises(Reactor::DeadlineExceeded) { named.acquire { named.acquire(timeout: 0.001) } }
    assert_raises(RangeError) { GC.stress = true; Reactor::Semaphore.new(2**70) }
  ensure
    GC.stress = false
  end

  def test_a_frozen_one_works_in_a_forked_child_too
    needs_fork
    semaphore = Reactor::Semaphore.new(1).freeze
    pid = fork { exit!(semaphore.acquire { true }) }
    assert_predicate reap(pid, TEST_TIMEOUT), :success?
    assert semaphore.acquire
  end

  def test_a_forked_child_hands_no_permit_to_those_who_wait_in_its_parent
    needs_fork
    semaphore = Reactor::Semaphore.new(1)
    semaphore.acquire
    waiter = Thread.new { semaphore.acquire { nil } }
    until_asleep(waiter)
    pid = fork { semaphore.release; exit!(semaphore.available == 1) }
    assert_predicate reap(pid, TEST_TIMEOUT), :success?
    semaphore.release
    join_or_fail(waiter, TEST_TIMEOUT)
  end

  def test_a_forked_child_has_the_permits_that_others_of_its_parent_hold
    needs_fork
    semaphore, limit = Reactor::Semaphore.new(1), Reactor::RateLimit.new(1, per: 0.001)
    held, release = Thread::Queue.new, Thread::Queue.new
    holder = Thread.new { semaphore.acquire { held << true; release.pop } }
    rate = Reactor::RateLimit.new(1, per: 3600).tap(&:acquire)
    waiter = Thread.new { rate.acquire }
    held.pop
    until_asleep(waiter)
    pid = fork { exit!(semaphore.acquire { true } && limit.acquire && rate.waiting.zero? && !rate.try_acquire && rate.waiting.zero?) }
    assert_predicate reap(pid, TEST_TIMEOUT), :success?
    release << true
    waiter.kill
    [holder, waiter].each { |thread| join_or_fail(thread, TEST_TIMEOUT) }
  end

  # On the main thread, because trap handlers run there. Nothing defers what they raise.
  def test_a_trap_handler_that_raises_neither_loses_nor_doubles_a_permit
    needs_fork
    out = child_says(<<~'RUBY')
      semaphore = Reactor::Semaphore.new(3)
      armed = false
      parent = Process.pid
      trap(:USR1) { (armed = false) || raise(IOError) if armed }
      child = fork { loop { Process.kill(:USR1, parent); sleep 0.001 } }
      50.times do
        armed = true
        loop { semaphore.acquire { nil } }
      rescue IOError
        armed = false
      end
      trap(:USR1, "IGNORE")
      Process.kill(:KILL, child)
      Process.wait(child)
      p semaphore.available
      limit = Reactor::RateLimit.new(1, per: 1)
      trap(:USR2) do
        p([-> { semaphore.acquire }, -> { semaphore.acquire { 1 } }, -> { semaphore.try_acquire }, -> { limit.acquire }].map { |call| call.call rescue $!.class }.uniq)
      end
      Process.kill(:USR2, Process.pid)
      p semaphore.available
    RUBY
    assert_equal "3\n[true, 1]\n1\n", out
  end

  def test_a_timeout_while_a_permit_is_handed_over_loses_none
    in_fiber do
      semaphore = Reactor::Semaphore.new(1)
      100.times do |i|
        semaphore.acquire
        Fiber.schedule { sleep 0.0001 * (i % 3); semaphore.release }
        [(semaphore.acquire(timeout: 0.0001) { :got } rescue Timeout::Error), (Timeout.timeout(0.0001) { semaphore.acquire { :got } } rescue Timeout::Error)]
        semaphore.acquire { nil }
      end
      assert_equal [1, 0], [semaphore.available, semaphore.waiting]
    end
  end

  def test_wrong_arguments
    { ArgumentError => [0, -1], TypeError => ["3", nil] }.each do |kind, list|
      list.each do |wrong|
        assert_match(/permits/, assert_raises(kind) { Reactor::Semaphore.new(wrong) }.message)
        assert_match(/count/, assert_raises(kind) { Reactor::RateLimit.new(wrong, per: 1) }.message)
        assert_match(/per/, assert_raises(kind) { Reactor::RateLimit.new(1, per: wrong) }.message)
      end
    end
    assert_match(/timeout/, assert_raises(TypeError) { Reactor::Semaphore.new(1).acquire(timeout: "1") }.message)
    assert_match(/timeout/, assert_raises(TypeError) { Reactor::RateLimit.new(1, per: 1).acquire(timeout: "1") }.message)
    assert_match(/timeout is NaN/, assert_raises(RangeError) { Reactor::Semaphore.new(1).try_acquire(timeout: Float::NAN) }.message)
    assert_match(/not initialized/, assert_raises(TypeError) { Reactor::Semaphore.allocate.acquire }.message)
    assert_raises(ArgumentError) { Reactor::Semaphore.new(1).acquire(time: 1) }
    assert_raises(ArgumentError) { Reactor::Semaphore.new(1).acquire(1) }
  end

  # --- the rate ----------------------------------------------------------------------------------------------------

  def test_so_many_pass_at_once_and_then_one_after_each_part_of_the_time
    Reactor::Testing.virtual_time do |clock|
      limit = Reactor::RateLimit.new(3, per: 1)
      times = Array.new(7) { limit.acquire && clock.elapsed.round(3) }
      assert_equal [0.0, 0.0, 0.0, 0.333, 0.667, 1.0, 1.333], times
      sleep 10
      assert_equal [true, true, true, false], Array.new(4) { limit.try_acquire }
    end
  end

  def test_who_comes_first_passes_first_and_who_is_ended_takes_no_place
    Reactor::Testing.virtual_time do |clock|
      limit = Reactor::RateLimit.new(1, per: 1)
      passed = []
      Reactor.group do |group|
        tasks = Array.new(6) { |i| group.async { passed << [i, clock.elapsed.round(6)] if limit.try_acquire(timeout: i == 3 ? 0.7 : nil) } }
        sleep 0.5
        assert_equal [5, false], [limit.waiting, limit.try_acquire]
        [tasks[1], tasks[4]].each(&:cancel)
      end
      assert_equal [[0, 0.0], [2, 1.0], [5, 2.0]], passed
      assert_equal 0, limit.waiting
    end
  end

  def test_the_block_runs_when_it_is_its_turn_and_others_do_not_wait_for_its_end
    Reactor::Testing.virtual_time do |clock|
      limit = Reactor::RateLimit.new(1, per: 1)
      assert_equal [0.0, 1.0], Reactor.group { |group| group.map([5, 0]) { |seconds| limit.acquire { clock.elapsed.tap { sleep seconds } } } }
      limit.acquire
      assert_equal "no call may pass within 0.5 s", assert_raises(Reactor::DeadlineExceeded) { limit.acquire(timeout: 0.5) { flunk } }.message
      assert_raises(KeyError) { limit.acquire { raise KeyError } }
      assert_equal 0, limit.waiting
    end
  end

  def test_threads_share_a_rate
    limit = Reactor::RateLimit.new(2, per: 0.001)
    passed = Thread::Queue.new
    threads = Array.new(4) { Thread.new { 5.times { limit.acquire && passed << 1 } } }
    took = elapsed { threads.each { |thread| join_or_fail(thread, TEST_TIMEOUT) } }
    assert_equal 20, passed.size
    assert_operator took, :>=, 0.009 # 2 at once, and then 18 parts of half a millisecond
  end

  Forgetful = Class.new(Reactor::Semaphore) { def initialize; end }

  def test_a_subclass_that_has_not_called_super_raises_as_a_queue_does
    queue = assert_raises(TypeError) { Thread::Queue.allocate.pop }
    [-> { Forgetful.new.acquire }, -> { Forgetful.new.acquire {} }, -> { Reactor::Semaphore.allocate.acquire(timeout: 0) }].each do |wait|
      [run_plain { told(&wait) }, in_fiber { told(&wait) }].each { |found| assert_equal TypeError, found.first }
    end
    assert_match(/not initialized/, queue.message)
  end
end

# frozen_string_literal: true

require_relative "helper"

# A late wake-up, meant for a wait that has ended, must not end the fiber's next wait.
class TestStale < ReactorTest
  def full_length(seconds = 0.03)
    assert_operator elapsed { sleep seconds }, :>=, seconds
  end

  def test_an_unblock_between_two_waits_is_dropped
    queue = Queue.new
    in_fiber do |scheduler|
      5.times do
        assert_nil queue.pop(timeout: 0.002)
        scheduler.unblock(queue, Fiber.current)
        full_length 0.01
      end
    end
  end

  def test_an_unblock_ends_neither_an_io_wait_nor_the_next_wait
    silent, = pipe
    r, w = pipe
    written = false
    run_scheduler do |scheduler|
      timed = Fiber.schedule do
        assert_operator elapsed { assert_nil silent.wait_readable(0.02) }, :>=, 0.02
        full_length
        assert_operator elapsed { assert_nil Queue.new.pop(timeout: 0.02) }, :>=, 0.02
      end
      3.times { scheduler.unblock(:late, timed) } # all of them during the wait, because no other fiber runs
      endless = Fiber.schedule { r.wait_readable; assert written; full_length }
      Fiber.schedule { 3.times { scheduler.unblock(:late, endless); sleep 0 }; written = true; w << "x" }
    end
  end

  def test_unblocks_from_another_thread_at_the_time_of_the_timeout
    queue = Queue.new
    got = 0
    run_scheduler do
      pusher = Thread.new { 200.times { sleep 0.001; queue << true } }
      Fiber.schedule do
        while pusher.alive? || !queue.empty?
          got += 1 if queue.pop(timeout: 0.001)
          assert_operator elapsed { sleep 0.0005 }, :>=, 0.0005
        end
      end
    end
    assert_equal 200, got
  end

  def test_neither_the_time_nor_the_readiness_of_an_interrupted_wait_ends_the_next
    r, w = pipe
    run_scheduler do
      victims = [-> { sleep 0.02 }, -> { r.wait_readable }].map do |wait|
        Fiber.schedule do
          begin
            wait.call
          rescue IndexError
            nil
          end
          full_length 0.05
        end
      end
      Fiber.schedule { victims.each { |victim| victim.raise(IndexError) }; w << "x" }
    end
  end

  def test_readiness_and_timeout_in_the_same_turn
    r, w = IO.pipe
    in_fiber do
      100.times do
        Fiber.schedule { sleep 0.0005; w << "x" }
        answer = r.wait_readable(0.0005)
        assert r.wait_readable(TEST_TIMEOUT) unless answer
        r.readpartial(1)
      end
      full_length
    end
  ensure
    [r, w].each(&:close)
  end

  def test_timeout_and_unblock_in_the_same_turn
    queue = Queue.new
    in_fiber do
      100.times do
        Fiber.schedule { sleep 0.001; queue << true }
        begin
          Timeout.timeout(0.001) { queue.pop }
        rescue Timeout::Error
          queue.pop
        end
      end
      assert_empty queue
      full_length
    end
  end

  def test_waits_inside_an_enumerator
    log = []
    arrived = Hash.new(0)
    run_scheduler do
      5.times do |n|
        Fiber.schedule do
          slow = Enumerator.new { |y| 4.times { |i| arrived[i] += 1; sleep 0.001 until arrived[i] == 5; y << i } }
          4.times { log << [n, slow.next] }
          assert_raises(StopIteration) { slow.next }
        end
      end
    end
    5.times { |n| assert_equal [0, 1, 2, 3], log.filter_map { |number, i| i if number == n } }
  end

  # No later fiber asks for the mutex, so only the interrupted fiber can wake the next one.
  def test_a_fiber_interrupted_before_it_locks_passes_the_mutex_on
    mutex = Mutex.new
    [->(fiber) { fiber.raise(IndexError) }, ->(fiber) { fiber.kill }].each do |interrupt|
      log = []
      go = Queue.new
      run_scheduler do
        first = nil
        Fiber.schedule { mutex.synchronize { go.pop }; interrupt[first] }
        first = Fiber.schedule { mutex.synchronize { log << :first } rescue log << :interrupted }
        Fiber.schedule { mutex.synchronize { log << :second } }
        go << true
      end
      assert_includes log, :second
      refute_includes log, :first
    end
  end

  def test_closing_the_descriptor_of_a_woken_fiber_in_the_same_turn
    pairs = Array.new(2) { IO.pipe }
    log = []
    run_scheduler do
      pairs.each_with_index do |(r, _), i|
        Fiber.schedule do
          r.wait_readable(TEST_TIMEOUT)
          other = pairs[1 - i][0]
          log << i
          other.close unless log.size > 1 || other.closed?
        rescue IOError
          log << :closed
        end
      end
      # Without a scheduler, because a write to a pipe may wait on Windows, which would wake the first reader alone.
      Fiber.schedule { Fiber.new(blocking: true) { pairs.each { |_, w| w << "x" } }.resume }
    end
    assert_equal 2, log.size
  ensure
    pairs.flatten.each { |io| io.close unless io.closed? }
  end
end

# frozen_string_literal: true

require_relative "helper"
require "socket"
require "timeout"

# The uring backend submits the writes of one turn together. The results must be those of direct writes.
class TestSends < ReactorTest
  def uring? = BACKEND == :uring

  def queued(scheduler) = scheduler.stats.fetch(:queued, 0)

  # Some writes were queued on uring, none on other backends. (Their number depends on the length of a turn.)
  def assert_queued(scheduler) = assert_equal(uring?, queued(scheduler).positive?)

  def test_concurrent_writes_are_batched_on_uring
    run_scheduler do |scheduler|
      pairs = Array.new(50) { tcp_pair }
      got = {}
      pairs.each_with_index do |(ours, theirs), number|
        Fiber.schedule { 20.times { |i| ours.write("#{number}:#{i};") }; ours.close }
        Fiber.schedule { got[number] = theirs.read; theirs.close }
      end
      scheduler.run
      50.times { |number| assert_equal Array.new(20) { |i| "#{number}:#{i};" }.join, got[number] }
      assert_queued scheduler
    end
  end

  def test_a_single_writer_writes_directly
    run_scheduler do |scheduler|
      ours, theirs = pair
      100.times { ours.write("x"); assert_equal "x", theirs.readpartial(9) }
      assert_equal 0, queued(scheduler)
    end
  end

  def test_no_receive_is_an_operation_of_the_driver
    got = []
    run_scheduler do |scheduler|
      ours, theirs = tcp_pair
      Fiber.schedule { %i[readpartial recv read].each { |way| got << theirs.public_send(way, 1) } }
      Fiber.schedule do
        %w[a b c].each_with_index do |text, before|
          sleep 0 until got.size == before # the receiver waits for the next byte, because it has run since
          ours.send(text, 0)
        end
      end
      scheduler.run
      assert_equal [0, 0], [queued(scheduler), scheduler.stats.fetch(:carried, 0)]
    end
    assert_equal %w[a b c], got
  end

  # Bytes arrive in the order of the calls, through one IO object or several, queued or not. (On Windows a copy is no socket.)
  def test_order_is_kept_between_queued_and_direct_writes
    run_scheduler do |scheduler|
      ours, theirs = pair
      small, large = "a" * 100, "b" * 40_000
      Fiber.schedule do
        [small, large, small, large.upcase, small].each do |text|
          io = windows? ? ours : track(ours.dup)
          Fiber.schedule { io.write(text) }
        end
      end
      text = Thread.new { theirs.read(3 * 100 + 2 * 40_000) }
      scheduler.run
      assert_bytes small + large + small + large.upcase + small, text.value
      assert_queued scheduler
    end
  end

  # Each with the data that the peer reads after the "a" of the earlier write.
  AROUND = {
    syswrite: [->(io) { io.syswrite("b") }, "ab"],
    close_write: [->(io) { io.close_write }, "a"]
  }.freeze

  # From a fiber of the scheduler, and from a fiber without hooks.
  STARTS = [->(_, &block) { Fiber.schedule(&block) }, :then.to_proc].freeze

  AROUND.each do |way, (call, expected)|
    define_method("test_#{way}_goes_after_a_write_that_has_begun") do
      STARTS.each do |start|
        run_scheduler do |scheduler|
          ours, theirs = tcp_pair
          log = []
          start.call(self) do
            Fiber.schedule { log << outcome { ours.write("a") } }
            call.(ours)
          end
          scheduler.run
          ours.close
          assert_equal [[[:value, 1]], expected], [log, theirs.read]
          assert_queued scheduler
        end
      end
    end
  end

  # A batch of two saves nothing: after a turn with one, writes are direct for a while.
  def test_two_concurrent_writers_write_directly
    run_scheduler do |scheduler|
      pairs = Array.new(2) { pair }
      pairs.each do |ours, theirs|
        Fiber.schedule { 50.times { ours.write("x"); sleep 0 } }
        Fiber.schedule { assert_equal "x" * 50, theirs.read(50) }
      end
      scheduler.run
      assert_operator queued(scheduler), :<, 50
      assert_queued scheduler
    end
  end

  # A writer keeps its turn even among more than 128 ready fibers.
  def test_a_crowd_of_writers_writes_directly
    run_scheduler do |scheduler|
      pairs = Array.new(300) { pair }
      gate = Queue.new
      pairs.each { |ours, _| Fiber.schedule { gate.pop; ours.write("x") } }
      pairs.size.times { gate << true }
      scheduler.run
      assert_equal ["x"] * pairs.size, pairs.map { |_, theirs| theirs.readpartial(9) }
      assert_operator queued(scheduler), :<=, 129
    end
  end

  # Repeated until all three writes were queued: the writes left at the end of a turn are direct, and so are those of many later
  # turns on the same scheduler.
  def test_an_error_is_raised_in_the_write_that_failed
    assert(eventually { run_scheduler { |scheduler| errors_of_three_writes(scheduler) } == (uring? ? 3 : 0) })
  end

  def errors_of_three_writes(scheduler)
    pairs = Array.new(3) { pair }
    pairs.values_at(0, 2).each { |_, theirs| theirs.close }
    before = queued(scheduler)
    log = []
    Fiber.schedule { pairs.each_with_index { |(ours, _), i| Fiber.schedule { log[i] = outcome { ours.write("x") } } } }
    scheduler.run
    assert_equal [[:raised, Errno::EPIPE], [:value, 1], [:raised, Errno::EPIPE]], log
    assert_equal "x", pairs[1].last.readpartial(9)
    pairs.flatten.each(&:close)
    queued(scheduler) - before
  end

  # If a fiber is interrupted before the kernel saw its queued write, the write is withdrawn as a whole and not counted.
  def test_a_raise_withdraws_a_queued_write
    [->(fiber) { fiber.raise(RuntimeError, "enough") }, ->(fiber) { fiber.kill }].each do |finish|
      run_scheduler do |scheduler|
        ours, theirs = pair
        log = []
        Fiber.schedule do
          fiber = Fiber.schedule do
            ours.write("abc")
            log << :wrote
            sleep
          rescue RuntimeError => e
            log << e.message
          ensure
            log << :left
          end
          finish.(fiber)
        end
        scheduler.run
        assert_equal :left, log.last
        ours.write(".")
        assert_equal log.include?(:wrote) ? "abc." : ".", theirs.readpartial(9)
        assert_equal uring?, !log.include?(:wrote)
      end
    end
  end

  # If the kernel has taken the write, the write returns first, and the error is raised in the next wait.
  def test_a_raise_after_a_queued_write_was_sent_arrives_in_the_next_wait
    run_scheduler do |scheduler|
      ours, theirs = pair
      other, = pair
      log = []
      Fiber.schedule do
        fiber = Fiber.schedule do
          log << ours.write("abc")
          sleep
        rescue RuntimeError => e
          log << e.message
        end
        other.close # submits the queued writes
        fiber.raise(RuntimeError, "enough")
      end
      scheduler.run
      assert_equal [3, "enough"], log
      assert_equal "abc", theirs.readpartial(9)
      assert_queued scheduler
    end
  end

  # The same with Ruby's write buffer, which would be sent again if its bytes were not reported as written.
  def test_a_timeout_of_a_flush_repeats_no_bytes
    run_scheduler do |scheduler|
      got, expected = [], []
      8.times do |number|
        ours, theirs = pair
        ours.sync = false
        expected[number] = +""
        Fiber.schedule do
          200.times do |round|
            text = "#{round};"
            expected[number] << text
            ours.write(text) # fills the buffer only
            Timeout.timeout(0.000_02 * (round % 5)) { ours.flush; sleep 0 }
          rescue Timeout::Error
            nil
          end
          ours.close
        end
        Fiber.schedule { got[number] = theirs.read; theirs.close }
      end
      scheduler.run
      expected.zip(got) { |wanted, text| assert_bytes wanted, text }
    end
  end

  # Another file may reuse the number after the close, so the queued write must be submitted before.
  def test_a_close_submits_the_queued_write
    run_scheduler do |scheduler|
      ours, theirs = pair
      log = []
      number = ours.fileno
      fresh = peer = nil
      Fiber.schedule do
        Fiber.schedule { log << outcome { ours.write("for the old one") } }
        ours.close
        fresh, peer = pair
        assert_includes [fresh.fileno, peer.fileno], number
      end
      scheduler.run
      assert_equal "for the old one", theirs.read
      [fresh, peer].each { |io| assert_equal :wait_readable, io.read_nonblock(99, exception: false) }
      assert_equal 1, log.size
    end
  end

  def test_the_end_of_the_scheduler_submits_queued_writes
    ours, theirs = pair
    thread = Thread.new do
      Fiber.set_scheduler(Reactor::Scheduler.new)
      Fiber.schedule { Fiber.schedule { ours.write("last words") } }
    end
    join_or_fail(thread, TEST_TIMEOUT)
    assert_equal "last words", theirs.readpartial(99)
  end

  def test_a_fork_does_not_repeat_queued_writes
    needs_fork
    run_scheduler do |scheduler|
      ours, theirs = pair
      pid = nil
      Fiber.schedule do
        Fiber.schedule { ours.write("once") }
        pid = fork { exit!(scheduler.closed? ? 0 : 1) }
      end
      scheduler.run
      assert_predicate Process::Status.wait(pid), :success?
      ours.close
      assert_equal "once", theirs.read
    end
  end
end

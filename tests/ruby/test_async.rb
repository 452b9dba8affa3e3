# frozen_string_literal: true

require_relative "helper"
require "tempfile"
require "reactor/async/selector" if defined?(Reactor::Poller)

# Each method of the selector protocol of IO::Event.
class TestAsyncSelector < ReactorTest
  def setup
    super
    skip "the native library is not loaded" unless defined?(Reactor::Poller)
  end

  # Runs the block as the event loop on a new thread.
  def selecting
    before = descriptors
    value = run_plain do
      selector = Reactor::AsyncSelector.new(Fiber.current, backend: BACKEND)
      yield selector
    ensure
      selector&.close
    end
    assert_equal [], leaked_descriptors(before)
    value
  end

  def fiber(&) = Fiber.new(&).tap(&:transfer)

  def test_a_wait_on_a_closed_poller_takes_no_number
    reading, = pipe
    poller = Reactor::Poller.new(BACKEND)
    poller.close
    3.times { assert_raises(RuntimeError) { poller.wait(reading, IO::READABLE) } }
    poller.send(:initialize, BACKEND)
    assert_equal 0, poller.wait(reading, IO::READABLE)
  ensure
    poller&.close
  end

  # Otherwise another thread could free the memory that the kernel writes to.
  def test_a_buffer_is_locked_while_a_file_is_read_into_it_without_the_gvl
    file = track(File.open(__FILE__))
    buffer = IO::Buffer.new(64)
    poller = Reactor::Poller.new(BACKEND)
    seen = over = false
    # This thread gets the GVL when the read releases it; the read continues when this thread releases it.
    watcher = Thread.new { Thread.pass until over || (seen = buffer.locked?) }
    assert((1..10_000).any? { poller.read(file, buffer, 0, 64); seen })
    refute_predicate buffer, :locked?
    assert_raises(IO::Buffer::LockedError) { buffer.locked { poller.read(file, buffer, 0, 64); buffer.free } }
  ensure
    over = true
    watcher&.join
    poller&.close
  end

  def test_transfer_resume_and_raise_switch_fibers_in_order
    log = []
    selecting do |selector|
      assert_same Fiber.current, selector.loop
      assert_nil selector.transfer, "transfer from the loop returns nil"
      parked = fiber { log << :parked; selector.transfer; log << :again }
      fiber { log << :one; selector.yield; log << :three }
      resumed = Fiber.new { |x| log << x; selector.transfer; log << :never }
      fiber { selector.resume(resumed, :two); log << :four }
      assert_predicate selector, :ready?
      raised = fiber { selector.transfer rescue log << $!.message }
      fiber { selector.raise(raised, "raised"); log << :five }
      selector.push(parked)
      selector.select(0)
      refute_predicate selector, :ready?
    end
    assert_equal [:parked, :one, :two, "raised", :three, :four, :five, :again], log
  end

  def test_a_fiber_pushed_during_select_runs_in_the_next_select
    log = []
    selecting do |selector|
      late = fiber { selector.transfer; log << :late }
      selector.push(fiber { selector.transfer; log << :first; selector.push(late) })
      selector.select(0)
      assert_equal [:first], log
      selector.select(0)
      selector.push(late) # dead by now
      selector.select(0)
    end
    assert_equal %i[first late], log
  end

  def test_select_sleeps_for_its_timeout
    selecting do |selector|
      assert_equal 0, selector.select(0)
      assert_equal 0.0, selector.idle_duration
      assert_equal 0, selector.select(-1)
      assert_operator elapsed { selector.select(0.02) }, :>=, 0.02
      assert_operator selector.idle_duration, :>=, 0.02
      assert_raises(TypeError) { selector.select("soon") }
      selector.push(fiber { selector.transfer })
      selector.select(nil) # returns after a fiber has run
    end
  end

  def test_wakeup_from_another_thread
    selecting do |selector|
      refute selector.wakeup
      log = []
      waiting = fiber { selector.transfer; log << :woken }
      thread = Thread.new { eventually { selector.wakeup && selector.push(waiting) && selector.wakeup } }
      selector.select(nil) while log.empty?
      thread.join
      assert_equal [:woken], log
    end
  end

  def test_thread_raise_ends_select
    selecting do |selector|
      main = Thread.current
      thread = Thread.new { until_asleep(main); main.raise(KeyError) }
      assert_raises(KeyError) { selector.select(nil) }
      thread.join
    end
  end

  # Async defers interrupts while it selects, and checks for them afterwards. Without a limit the sleep would never end.
  def test_select_does_not_sleep_while_a_masked_interrupt_is_pending
    selecting do |selector|
      assert_raises(KeyError) do
        Thread.handle_interrupt(KeyError => :never) do
          Thread.current.raise(KeyError)
          2.times { assert_equal 0, selector.select(nil) }
        end
      end
    end
  end

  def test_waits_for_descriptors
    r, w = pipe
    a, b = pair
    log = []
    selecting do |selector|
      wait = ->(name, io, events) { fiber { log << [name, selector.io_wait(Fiber.current, io, events)] } }
      fill(a)
      wait.(:r1, r, IO::READABLE)
      wait.(:r2, r, IO::READABLE)
      wait.(:write, a, IO::WRITABLE)
      wait.(:both, b, IO::READABLE | IO::WRITABLE)
      selector.select(0.01) while log.empty?
      assert_equal [[:both, IO::READABLE | IO::WRITABLE]], log
      log.clear
      w << "x"
      until log.size == 3
        b.read_nonblock(1_000_000, exception: false)
        selector.select(0.01)
      end
      assert_equal [[:r1, 1], [:r2, 1], [:write, 4]], log.sort
      log.clear
      wait.(:hung_up, r, IO::PRIORITY | IO::READABLE)
      w.close
      selector.select(0.01) while log.empty?
      assert_equal 1, log.size
      assert_operator log.dig(0, 1) & IO::READABLE, :>, 0
      file = track(File.open(__FILE__))
      assert_equal IO::READABLE, selector.io_wait(Fiber.current, file, IO::READABLE)
    end
  end

  def test_io_wait_resumed_without_readiness_returns_false
    r, w = pipe
    log = []
    selecting do |selector|
      waiting = fiber { log << selector.io_wait(Fiber.current, r, IO::READABLE); log << selector.io_wait(Fiber.current, r, IO::READABLE) }
      waiting.transfer
      assert_equal [false], log
      assert_raises(KeyError) { waiting.raise(KeyError) }
      assert_equal 0, selector.stats[:waiting]
      w << "x"
      assert_equal 0, selector.select(0)
      other = fiber { log << selector.io_wait(Fiber.current, r, IO::READABLE) }
      selector.select(0) while other.alive?
      assert_equal [false, 1], log
      assert_raises(TypeError) { selector.io_wait(Fiber.current, 5, 1) }
      assert_raises(ArgumentError) { selector.io_wait(Fiber.current, r, 0) }
      r.close
      assert_raises(IOError) { selector.io_wait(Fiber.current, r, IO::READABLE) }
    end
  end

  def test_closing_an_io_raises_io_error_in_its_waiters
    skip "Ruby 4.0 and later call io_close" if RUBY_VERSION >= "4.0"
    r, = pipe
    log = []
    selecting do |selector|
      fiber { selector.io_wait(Fiber.current, r, IO::READABLE) rescue log << $!.class }
      r.close
      selector.select(0)
    end
    assert_equal [IOError], log
  end

  AGAIN = -Errno::EWOULDBLOCK::Errno
  INVALID = -Errno::EINVAL::Errno

  # Both interface versions on every Ruby.
  def test_transfer_least_and_transfer_once
    [pipe, pair].each do |r, w|
      selecting do |selector|
        least = ->(what, _event, io, buffer, length, offset) { selector.send(:transfer_least, what, io, buffer, length, offset) }
        once = ->(what, io, buffer, offset, length) { selector.send(:transfer_once, what, io, buffer, offset, length) }
        room = buffer_of(8)
        assert_equal AGAIN, least.(:read, 1, r, room, 0, 0)
        assert_equal AGAIN, once.(:read, r, room, 0, 8)
        assert_equal INVALID, least.(:read, 1, r, room, 0, 9)
        assert_equal INVALID, once.(:read, r, room, 4, 5)
        assert_equal 0, least.(:read, 1, r, room, 0, 8)
        assert_equal 0, once.(:read, r, room, 8, 0)
        assert_equal 3, least.(:write, 4, w, buffer_of("abc"), 3, 0)
        assert_equal 2, once.(:write, w, buffer_of("defg"), 0, 2)
        assert_equal 2, once.(:read, r, room, 1, 2)
        assert_equal "ab", room.get_string(1, 2)
        got = nil
        fiber { got = least.(:read, 1, r, room, 6, 2) }
        assert_nil got, "it waits for more"
        w << "xyz"
        selector.select(1) until got
        assert_equal [6, "cdexyz"], [got, room.get_string(2, 6)]
        w.close
        assert_equal 0, least.(:read, 1, r, room, 5, 0)
      end
    end
  end

  def test_regular_files_are_read_and_written
    Tempfile.create do |file|
      selecting do |selector|
        assert_equal 3, selector.send(:transfer_once, :write, file, buffer_of("abc"), 0, 3)
        file.rewind
        room = buffer_of(8)
        assert_equal 3, selector.send(:transfer_once, :read, file, room, 0, 8)
        assert_equal 0, selector.send(:transfer_once, :read, file, room, 0, 8)
      end
    end
  end

  def test_children
    selecting do |selector|
      waits = lambda do |pid, flags = 0|
        status = nil
        fiber { (status = selector.process_wait(Fiber.current, pid, flags)) until status }
        selector.select(1) until status
        status
      end
      pid = spawn(*shell("sleep 0.01; exit 3"))
      assert_equal 3, waits.(pid).exitstatus
      pid = spawn(*shell("exit 4"))
      assert_equal [pid, 4], waits.(-1).then { |status| [status.pid, status.exitstatus] }
      pid = spawn(*shell("exit 5"))
      assert_equal 5, waits.(0).exitstatus
      assert_equal(-1, waits.(pid).pid, "no child: the caller raises")
      r, w = pipe
      assert_nil selector.process_wait(Fiber.current, spawn(*shell("read line; true"), in: r), Process::WNOHANG)
      w.puts
      waits.(-1)
    end
  end

  def test_close_in_the_process_and_in_a_forked_child
    selector = Reactor::AsyncSelector.new(Fiber.current)
    r, w = IO.pipe
    assert selector.io_close(w.fileno), "a pipe is closed at once"
    assert_equal "", r.read, "its writing end is gone"
    w.autoclose = false
    r.close
    needs_fork
    pid = fork { exit!(selector.closed? && selector.close.nil? ? 0 : 1) }
    assert_predicate Process.wait2(pid).last, :success?
    refute_predicate selector, :closed?
    selector.close
    selector.close
    assert_predicate selector, :closed?
    assert_raises(RuntimeError) { selector.select(0) }
    refute selector.wakeup
  end
end

# Async on Reactor::AsyncSelector, if Async is installed.
class TestAsync < ReactorTest
  READY = begin
    require "async"
    require "async/barrier"
    require "async/limited_queue"
    require "async/notification"
    require "async/semaphore"
    require "reactor/async"
    true
  rescue LoadError => error
    error.message.lines.first.strip
  end

  def setup
    super
    skip "Async cannot be loaded: #{READY} (bin/setup --peers)" unless READY == true
  end

  def async(&block)
    before = descriptors
    value = run_plain do
      scheduler = Async::Scheduler.new(selector: Reactor::AsyncSelector.new(Fiber.current, backend: BACKEND))
      Fiber.set_scheduler(scheduler)
      task = nil
      scheduler.run { task = scheduler.async { |it| instance_exec(it, &block) } }
      task.wait
    end
    assert_equal [], leaked_descriptors(before)
    value
  end

  def test_io_event_selector_in_the_environment_selects_reactor
    out = child_says(<<~RUBY, env: { "IO_EVENT_SELECTOR" => "Reactor" }, gems: true)
      require "async"
      require "reactor/async"
      Sync { puts Fiber.scheduler.instance_variable_get(:@selector).class }
    RUBY
    assert_equal "Reactor::AsyncSelector\n", out
  end

  def test_tasks_and_timeouts
    log = []
    async do |task|
      tasks = Array.new(5) { |i| task.async { sleep ms(2) * (5 - i); log << i; i } }
      assert_equal [0, 1, 2, 3, 4], tasks.map(&:wait)
      assert_raises(Async::TimeoutError) { task.with_timeout(0.01) { Thread::Queue.new.pop } }
      r, = pipe
      assert_raises(Async::TimeoutError) { task.with_timeout(0.01) { r.read(1) } }
      assert_nil r.wait_readable(0.01)
      cancelled = task.async { sleep } # rubocop:disable Lint/UselessAssignment
      cancelled.stop
      queue = Thread::Queue.new
      Thread.new { queue << :thread }
      assert_equal :thread, queue.pop
    end
    assert_equal [0, 1, 2, 3, 4], log.sort
  end

  # As Solid Queue's workers of fibers do.
  def test_jobs_that_another_thread_hands_over_run_at_once_up_to_the_limit_of_a_semaphore
    jobs, full = Thread::Queue.new, gate(3)
    producer = Thread.new { 9.times { |number| jobs << number }; jobs.close }
    done, most, live = [], 0, 0
    async do |task|
      semaphore = Async::Semaphore.new(3, parent: task)
      while (job = jobs.pop)
        semaphore.async(job) do |_, number|
          most = [most, live += 1].max
          full.call # three come before one ends
          r, w = pipe
          task.async { w.write(number.to_s) && w.close }
          done << Integer(r.read)
        ensure
          live -= 1
        end
      end
    end
    producer.join
    assert_equal [[*0..8], 3], [done.sort, most]
  end

  def test_a_barrier_waits_for_its_tasks_and_stops_those_that_wait
    async do
      barrier, r = Async::Barrier.new, pipe.first
      assert_equal [0, 1, 2], Array.new(3) { |number| barrier.async { sleep 0; number } }.map(&:wait)
      barrier.wait
      ended = []
      waits = [-> { sleep }, -> { r.read(1) }, -> { Thread::Queue.new.pop }, -> { Reactor.offload { Thread::Queue.new.pop(timeout: TEST_TIMEOUT) } }]
      waits.each { |wait| barrier.async { wait.call } }
      barrier.stop
      barrier.wait { |task| ended << task.status }
      assert_predicate barrier, :empty?
      assert_equal [], ended - %i[stopped cancelled]
    end
  end

  def test_a_notification_wakes_all_and_a_limited_queue_makes_its_writers_wait
    log = []
    async do |task|
      notification = Async::Notification.new
      waiters = Array.new(3) { |number| task.async { notification.wait; log << number } }
      notification.signal
      waiters.each(&:wait)
      queue = Async::LimitedQueue.new(2)
      writer = task.async { 6.times { |number| queue.enqueue(number) }; queue.close }
      assert_predicate queue, :limited?
      queue.each { |number| log << number }
      writer.wait
    end
    assert_equal [0, 1, 2, 0, 1, 2, 3, 4, 5], log
  end

  def test_reactor_offload_parks_only_its_task
    gate = gate(3)
    threads = async do |task|
      assert_equal "x", assert_raises(KeyError) { Reactor.offload { raise KeyError, "x" } }.message
      Array.new(3) { task.async { Reactor.offload { gate.call; Thread.current } } }.map(&:wait)
    end
    assert_equal 3, (threads - [Thread.current]).uniq.size, "no block ends before all have begun"
    assert eventually { threads.none?(&:alive?) }, "each had a thread of its own, which ends with the block"
  end
end

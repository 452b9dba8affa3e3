# frozen_string_literal: true

require_relative "helper"
require "tempfile"

# In a forked child of the scheduler's process the hooks do what plain Ruby does, on every backend. Each test forks inside a
# fiber, and the child sends its result to the parent.
class TestForkedChild < ReactorTest
  # Runs the block in a forked child, in a fiber that still has the parent's scheduler.
  #
  # @return [Array] :value and what the block returned, or :raised, the class and the message
  def in_child
    reading, writing = IO.pipe
    run_scheduler do |scheduler|
      Fiber.schedule do
        pid = fork do
          reading.close
          answer = begin
            [:value, yield(scheduler)]
          rescue Exception => error # rubocop:disable Lint/RescueException -- for the parent to see
            [:raised, error.class.name, error.message]
          end
          writing.write(Marshal.dump(answer))
          writing.close
          exit!(0)
        end
        Process.wait(pid)
      end
    end
    writing.close
    Marshal.load(reading.read)
  ensure
    [reading, writing].each { |io| io.close unless io.closed? }
  end

  def assert_in_child(expected, &)
    kind, *answer = in_child(&)
    assert_equal [:value, expected], [kind, answer.first], answer.inspect
  end

  def setup
    super
    skip_under_stress
    needs_fork
  end

  def test_the_scheduler_detects_the_fork
    assert_in_child([true, true, nil]) { |scheduler| [scheduler.forked_child?, scheduler.closed?, Reactor::Schedulers.current] }
  end

  def test_sleep_in_the_child
    assert_in_child(true) { sleep(0.02) && true }
  end

  def test_wait_readable_and_wait_writable
    assert_in_child([nil, "x", true]) do
      reading, writing = IO.pipe
      late = reading.wait_readable(0.01)
      Thread.new { sleep 0.01; writing.write("x") }
      [late, reading.wait_readable && reading.read(1), !!writing.wait_writable]
    end
  end

  def test_a_read_waits_for_data
    assert_in_child("later") do
      ours, theirs = UNIXSocket.pair
      Thread.new { sleep 0.01; theirs.write("later"); theirs.close }
      ours.read
    end
  end

  def test_io_select
    assert_in_child([nil, true]) do
      reading, writing = IO.pipe
      late = IO.select([reading], nil, nil, 0.01)
      writing.write("x")
      [late, IO.select([reading], nil, nil)[0].first.equal?(reading)]
    end
  end

  def test_mutexes_queues_and_threads
    assert_in_child([nil, :late, 7, true]) do
      queue = Thread::Queue.new
      none = queue.pop(timeout: 0.01)
      Thread.new { sleep 0.01; queue << :late }
      mutex = Thread::Mutex.new
      locked = false
      holder = Thread.new { mutex.synchronize { locked = true; sleep 0.02 } }
      Thread.pass until locked
      [none, queue.pop, Thread.new { sleep 0.01; 7 }.value, mutex.synchronize { holder.join && true }]
    end
  end

  def test_children_of_the_child
    assert_in_child([3, "out\n", true]) do
      pid = fork { exit!(3) }
      Process.wait(pid)
      [$?.exitstatus, `echo out`, system("exit 0")]
    end
  end

  def test_name_resolution
    assert_in_child([true, true, true]) do
      server = TCPServer.new("localhost", 0)
      port = server.addr[1]
      client = TCPSocket.new("localhost", port)
      [Addrinfo.getaddrinfo("localhost", nil).any?, IPSocket.getaddress("localhost").is_a?(String), client.peeraddr(:numeric)[1] == port]
    end
  end

  def test_files
    assert_in_child(["text", 0, 4, true]) do |scheduler|
      Tempfile.create("child") do |file|
        file.write("text")
        file.fsync
        file.flock(File::LOCK_EX)
        copy = Tempfile.create("copy")
        copied = IO.copy_stream(file.path, copy)
        [File.read(file.path), file.flock(File::LOCK_UN), copied, scheduler.offload { true }]
      end
    end
  end

  def test_a_lock_held_by_another_process
    assert_in_child(["refused\n", 0]) do
      Tempfile.create("lock") do |file|
        file.flock(File::LOCK_EX)
        path = file.path
        reading, writing = IO.pipe
        pid = fork do
          other = File.open(path)
          writing.puts(other.flock(File::LOCK_EX | File::LOCK_NB) ? "granted" : "refused")
          exit!(other.flock(File::LOCK_EX))
        end
        said = reading.gets
        file.flock(File::LOCK_UN)
        Process.wait(pid)
        [said, $?.exitstatus]
      end
    end
  end

  def test_timeout
    assert_in_child([Timeout::Error, KeyError, "late", 5, :left]) do
      late = ->(*options) { Timeout.timeout(0.01, *options) { sleep } rescue $! }
      named = late.(KeyError, "late")
      [late.().class, named.class, named.message, Timeout.timeout(TEST_TIMEOUT) { 5 }, Timeout.timeout(TEST_TIMEOUT) { break :left }]
    end
  end

  def test_a_new_fiber_needs_a_scheduler_of_the_childs_own
    kind, name, message = in_child { Fiber.schedule { nil } && nil }
    assert_equal [:raised, "RuntimeError"], [kind, name]
    assert_match(/scheduler/, message)
    assert_in_child(:own) do
      Thread.new do
        Fiber.set_scheduler(Reactor::Scheduler.new)
        answer = nil
        Fiber.schedule { sleep 0.001; answer = :own }
        Fiber.scheduler.run
        answer
      end.value
    end
  end

  def test_unblock_close_and_run_do_nothing
    assert_in_child([nil, nil]) do |scheduler|
      scheduler.unblock(nil, Fiber.current)
      [scheduler.close, scheduler.run]
    end
  end
end

# frozen_string_literal: true

require_relative "helper"

# Waiting for children parks only the fiber, and each status is delivered once.
class TestProcess < ReactorTest
  def teardown
    assert_raises(Errno::ECHILD, "a child is left") { Process.wait(-1, Process::WNOHANG) } unless @hung
    super
  end

  # A wait for a child that has ended does not park.
  def test_waits_for_ended_children_do_not_starve_a_timer
    needs_linux "/proc tells when a child has ended"
    log = []
    run_scheduler do
      child = spawn("true")
      Fiber.schedule do
        sleep 0.01 until File.read("/proc/#{child}/stat").include?(" Z ")
        Fiber.schedule { sleep 0; log << :other }
        Process.wait(child)
        log << :child
      end
    end
    assert_equal %i[other child], log
  end

  # In a separate process, because fork(2) copies the list of all stacks left by fibers of other tests.
  def test_children_run_concurrently
    said = child_says(<<~'RUBY').lines(chomp: true)
      said = {}
      done = 0
      there, tell = IO.pipe
      input, gate = IO.pipe
      $stdin.reopen(input)
      tell.close_on_exec = false
      wait = "echo >/dev/fd/#{tell.fileno}; cat" # its input ends when all children run
      Fiber.set_scheduler(Reactor::Scheduler.new)
      8.times { |i| Fiber.schedule { said[i] = `#{wait}; echo #{i}` } }
      8.times { Fiber.schedule { done += 1 if system(wait) } }
      Fiber.schedule { 16.times { there.gets }; gate.close }
      Fiber.scheduler.run
      p said.sort.map(&:last), done
    RUBY
    assert_equal [Array.new(8) { |i| "#{i}\n" }.inspect, "8"], said
  end

  # In a separate process, because fork(2) copies the list of all stacks left by fibers of other tests.
  def test_each_status_reaches_its_waiter
    out = child_says(<<~'RUBY')
      most, wrong = 0, []
      input, gate = IO.pipe
      thread = Thread.new do
        Fiber.set_scheduler(scheduler = Reactor::Scheduler.new)
        50.times do |number|
          Fiber.schedule do
            pid = spawn(*shell("read line; exit #{number}"), in: input)
            waited, status = Process.wait2(pid)
            wrong << number unless [pid, number] == [waited, status.exitstatus]
          end
        end
        Fiber.schedule do
          sleep 0 # each fiber yields before it waits
          sleep 0.001 until scheduler.stats[:parked] >= 50
          most = Thread.list.size
          gate.close # ends all children
        end
      end
      thread.join
      left = begin
        Process.wait
      rescue Errno::ECHILD
        nil
      end
      p wrong, left, most
    RUBY
    wrong, left, most = out.lines(chomp: true)
    assert_equal %w[[] nil], [wrong, left]
    assert_operator most.to_i, :<, 20, "a thread for each child"
  end

  def test_waiting_for_a_process_that_is_not_a_child_raises_as_in_plain_ruby
    group = -(2**21 + 1)
    questions = [
      -> { Process.wait(Process.pid) }, -> { Process.wait(2**22 + 1) }, -> { Process.wait }, -> { Process.wait(0) }, -> { Process.wait(group) },
      -> { Process.wait(1, Process::WUNTRACED) }, -> { Process.waitall }, -> { Process::Status.wait(-1).pid }, -> { Process::Status.wait(Process.pid).inspect },
      -> { Process.wait(-1, 0x4000_0000) }, -> { Process.wait(-(2**31)) }
    ]
    questions.each_with_index { |question, number| assert_as_plain("question #{number}") { told(&question) } }
  end

  # For each kind of process argument, with and without flags.
  def test_a_child_can_be_waited_for_after_a_timeout
    in_fiber do
      reader, writer = pipe
      [[1, 0, 0], [0, -1, 0], [-1, 0, 0], [1, 0, Process::WUNTRACED]].each do |factor, otherwise, flags|
        pid = spawn(*shell("read line; exit 6"), **OWN_GROUP, in: reader)
        assert_raises(Timeout::Error) { Timeout.timeout(0.02) { Process.wait(pid * factor + otherwise, flags) } }
        writer.puts
        assert_equal [pid, 6], Process.wait2(pid).then { |waited, status| [waited, status.exitstatus] }
      end
    end
  end

  # The child ends at the time of the timeout. If the timeout wins, the status must still be available.
  def test_a_timeout_at_the_end_of_a_child_loses_no_status
    out = child_says(<<~RUBY)
      require "timeout"
      wrong, count, ends, timeouts = [], 0, 0, 0
      limit = 0.003 # follows the time of a child, so both outcomes occur
      Fiber.set_scheduler(Reactor::Scheduler.new)
      Fiber.schedule do
        until (ends >= 25 && timeouts >= 25) || wrong.any?
          pid = spawn(*shell("sleep 0.001; exit 3"))
          waited = begin
            found = Timeout.timeout(limit) { Process.wait((count += 1).even? ? -1 : pid) }
            ends += 1
            limit /= 1.2
            found
          rescue Timeout::Error
            timeouts += 1
            limit *= 1.2
            Process.wait(-1)
          end
          wrong << [count, waited, $?] unless waited == pid && $?.exitstatus == 3
        end
      end
      Fiber.scheduler.run
      p wrong
    RUBY
    assert_equal "[]\n", out
  end

  def test_many_fibers_wait_for_any_child
    found = []
    input, gate = pipe
    run_scheduler do |scheduler|
      spawned = Array.new(20) { |i| [spawn(*shell("read line; exit #{i}"), in: input), i] }
      20.times { Fiber.schedule { found << waited(-1) } }
      Fiber.schedule do
        sleep 0 # each fiber yields before it waits
        until_parked(scheduler, 20)
        gate.close # ends all children
      end
      Fiber.scheduler.run
      assert_equal spawned.sort, found.sort
    end
  end

  # A handler of SIGCHLD that reaps all children, as in many daemons.
  REAPER = <<~'RUBY'
    taken = []
    trap("CHLD") do
      while (pid = Process.wait(-1, Process::WNOHANG))
        taken << pid
      end
    rescue Errno::ECHILD
      nil
    end
    status = ->(pid) { [Process.wait2(pid)[1].exitstatus, taken.include?(pid)] }
    input, gate = IO.pipe
    child = -> { fork { gate.close; input.read(1); exit! 6 } }
  RUBY

  # The handler runs while the fiber that waits is the one that polls.
  def test_a_handler_that_reaps_all_children_takes_no_status_of_a_fiber
    needs_fork
    out = child_says(<<~RUBY)
      #{REAPER}
      Reactor.__send__(:const_get, :ChildEvents).singleton_class.prepend(Module.new { def taken(_) = nil }) # as before Linux 6.15
      Reactor.run do
        main = Thread.current
        Thread.new { Thread.pass until main.stop?; gate.close }
        p status.call(child.call)
      end
    RUBY
    assert_equal "[6, true]\n", out
  end

  # The handler runs in another fiber.
  def test_a_handler_that_reaps_all_children_in_another_fiber_takes_no_status
    needs_fork
    out = child_says(<<~RUBY)
      told = IO.for_fd(Reactor.__send__(:const_get, :Internal).pidfd(ended = fork { exit! 5 }) || exit) # no pidfd
      Process.wait(ended)
      exit unless Reactor.__send__(:const_get, :ChildEvents).taken(told) # before Linux 6.15
      #{REAPER}
      Reactor.run do
        pid = child.call
        Fiber.schedule { p status.call(pid) }
        gate.close
        1 until taken.include?(pid)
      end
    RUBY
    skip "no status of a child that is gone" if out.empty?
    assert_equal "[6, true]\n", out
  end

  # The last child ends first, and each end ends the child before it.
  def test_several_fibers_wait_for_groups
    pipes = Array.new(12) { pipe }
    run_scheduler do |scheduler|
      pipes.each_with_index do |(input, _), i|
        Fiber.schedule do
          pid = spawn(*shell("read line; exit #{i}"), in: input, **OWN_GROUP)
          assert_equal [pid, i], waited(-pid)
          pipes[i - 1][1].close if i.positive?
        end
      end
      Fiber.schedule { sleep 0; until_parked(scheduler, 12); pipes.last[1].close }
    end
  end

  def test_waitall_returns_every_status
    in_fiber do
      pids = Array.new(5) { |i| spawn(*shell("sleep 0.0#{5 - i}; exit #{i}")) }
      assert_equal pids.each_with_index.sort, Process.waitall.map { |pid, status| [pid, status.exitstatus] }.sort
    end
  end

  def test_wnohang_does_not_wait
    in_fiber do
      reader, writer = pipe
      pid = spawn(*shell("read line; exit 8"), in: reader)
      assert_nil Process.wait(pid, Process::WNOHANG)
      assert_nil Process.wait(-1, Process::WNOHANG)
      writer.puts
      assert_equal 8, Process.wait2(pid)[1].exitstatus
    end
  end

  def test_a_child_that_stops_and_then_ends
    in_fiber do
      [->(pid) { pid }, ->(_) { -1 }].each do |argument|
        pid = spawn(*shell("kill -STOP $$; exit 9"))
        _, status = Process.wait2(argument[pid], Process::WUNTRACED)
        assert_predicate status, :stopped?
        Process.kill(:CONT, pid)
        assert_equal 9, Process.wait2(argument[pid], Process::WUNTRACED)[1].exitstatus
      end
    end
  end

  def test_popen
    text = "0123456789abcdef" * 65_536
    run_scheduler do
      4.times do |i|
        Fiber.schedule do
          IO.popen(shell("cat; exit #{i}"), "r+") do |io|
            Fiber.schedule { io.write(text); io.close_write }
            assert_bytes text, io.read
          end
          assert_equal i, $?.exitstatus
        end
        Fiber.schedule do
          io = IO.popen(shell("echo #{i}; exit #{i}"))
          assert_equal "#{i}\n", io.read
          io.close
          assert_equal i, $?.exitstatus
        end
      end
    end
  end

  def test_the_exit_status_of_commands
    in_fiber do
      assert_equal "out\n", `echo out; exit 11`
      assert_equal 11, $?.exitstatus
      assert_equal false, system("exit 12")
      assert_equal 12, $?.exitstatus
      assert_nil system("/nonexistent/command")
      assert_equal 127, $?.exitstatus
      assert_raises(Errno::ENOENT) { system("/nonexistent/command", exception: true) }
      error = assert_raises(RuntimeError) { system("exit 13", exception: true) }
      assert_match(/exit 13/, error.message)
      assert_raises(Errno::ENOENT) { `/nonexistent/command` }
      assert_raises(Errno::ENOENT) { spawn("/nonexistent/command") }
    end
  end

  # When SIGCHLD is ignored, there are no zombies and no statuses.
  def test_children_with_sigchld_ignored
    code = <<~RUBY
      trap(:CHLD, "IGNORE")
      ask = ->(scheduled) do
        Thread.new do
          answer = []
          body = -> do
            pid = spawn(*shell("sleep 0.01; exit 3"))
            answer << (Process.wait(pid) rescue $!.class)
            pid = spawn(*shell("sleep 0.01; exit 3"))
            answer << (Process.wait rescue $!.class)
          end
          if scheduled
            Fiber.set_scheduler(Reactor::Scheduler.new)
            Fiber.schedule(&body)
            Fiber.scheduler.run
          else
            body.call
          end
          answer
        end.value
      end
      p [ask.(false), ask.(true)].uniq
    RUBY
    assert_equal "[[Errno::ECHILD, Errno::ECHILD]]\n", child_says(code)
  end

  def test_the_end_of_the_scheduler_leaves_the_child
    [:itself, -1].each do |argument|
      input, gate = pipe
      pid = spawn(*shell("read line; exit 14"), in: input)
      waiting = Queue.new
      thread = Thread.new do
        Thread.current.report_on_exception = false
        Fiber.set_scheduler(Reactor::Scheduler.new)
        Fiber.schedule { Process.wait(argument == :itself ? pid : argument) }
        waiting << true
      end
      waiting.pop
      until_asleep(thread).kill
      join_or_fail(thread, TEST_TIMEOUT)
      gate.close
      assert_equal [pid, 14], waited(pid)
    end
  end

  # As on a system without pidfd_open(2), where threads or polling wait for children.
  def test_children_without_pidfd_open
    pidfd = Reactor::Internal.method(:pidfd)
    without_warnings { Reactor::Internal.define_singleton_method(:pidfd) { |_| nil } }
    run_scheduler do
      10.times { |i| Fiber.schedule { pid = spawn(*shell("sleep 0.02; exit #{i}")); assert_equal [pid, i], waited(pid) } }
      Fiber.schedule do
        reader, writer = pipe
        pid = spawn(*shell("read line; exit 15"), in: reader)
        assert_raises(Timeout::Error) { Timeout.timeout(0.02) { Process.wait(pid) } }
        writer.puts
        assert_equal [pid, 15], waited(pid)
      end
    end
  ensure
    without_warnings { Reactor::Internal.define_singleton_method(:pidfd, pidfd) }
  end

  private

  def waited(argument)
    pid, status = Process.wait2(argument)
    [pid, status.exitstatus]
  end

  def without_warnings
    verbose, $VERBOSE = $VERBOSE, nil
    yield
  ensure
    $VERBOSE = verbose
  end
end

# frozen_string_literal: true

require_relative "helper"
require "open3"

# Children: waited for without stopping the other fibers, each status delivered once to whoever asked.
class TestProcess < ReactorTest
  def test_children_run_side_by_side
    seconds = elapsed do
      run_scheduler do
        8.times { |i| Fiber.schedule { assert_equal "#{i}\n", `sleep 0.3; echo #{i}` } }
        8.times { Fiber.schedule { assert system("sleep 0.3") } }
      end
    end
    assert_operator seconds, :<, 16 * 0.3 / 2
  end

  def test_the_others_go_on_meanwhile
    log = []
    run_scheduler do
      Fiber.schedule { system("sleep 0.2"); log << :child }
      Fiber.schedule { 3.times { sleep 0.01; log << :tick } }
    end
    assert_equal %i[tick tick tick child], log
  end

  def test_each_status_reaches_its_waiter
    run_scheduler do
      20.times do |code|
        Fiber.schedule do
          pid = spawn("exit #{code}")
          waited, status = Process.wait2(pid)
          assert_equal [pid, code], [waited, status.exitstatus]
        end
      end
    end
    assert_raises(Errno::ECHILD) { Process.wait(-1, Process::WNOHANG) }
  end

  def test_a_process_that_is_no_child
    run_scheduler do
      Fiber.schedule { assert_raises(Errno::ECHILD) { Process.wait(Process.pid) } }
      Fiber.schedule { assert_raises(Errno::ECHILD) { Process.wait(2**22 + 1) } }
    end
  end

  # N5: whatever is waited for, and however.
  def test_n5_a_timeout_leaves_the_child_to_be_waited_for
    run_scheduler do
      Fiber.schedule do
        [[1, 0, 0], [0, -1, 0], [-1, 0, 0], [1, 0, Process::WUNTRACED]].each do |factor, otherwise, flags|
          pid = spawn("sleep 0.2; exit 6", pgroup: true)
          assert_raises(Timeout::Error) { Timeout.timeout(0.02) { Process.wait(pid * factor + otherwise, flags) } }
          assert_equal [pid, 6], Process.wait2(pid).then { |waited, status| [waited, status.exitstatus] }
        end
      end
    end
  end

  # N5: the child ends just when the time is up. Once the timeout has won, the status must still be there.
  def test_n5_no_status_is_lost_to_a_timeout_that_comes_with_it
    heavy!
    timeouts = 0
    run_scheduler do
      Fiber.schedule do
        100.times do |i|
          pid = spawn("exit 3")
          begin
            Timeout.timeout(0.0005 + i % 25 * 0.0001) { Process.wait(i.even? ? -1 : pid) }
          rescue Timeout::Error
            timeouts += 1
            assert_equal pid, Process.wait(-1)
          end
          assert_equal 3, $?.exitstatus
        end
      end
    end
    assert_operator timeouts, :>, 0, "the test needs some timeouts"
  end

  # N21
  def test_n21_any_child_and_a_group
    run_scheduler do
      Fiber.schedule do
        pid = spawn("sleep 0.05; exit 4")
        assert_equal [pid, 4], Process.wait2(-1).then { |waited, status| [waited, status.exitstatus] }
        pid = spawn("sleep 0.05; exit 5", pgroup: true)
        assert_equal [pid, 5], Process.wait2(-pid).then { |waited, status| [waited, status.exitstatus] }
        pid = spawn("sleep 0.05; exit 6") # in our own group
        assert_equal [pid, 6], Process.wait2(0).then { |waited, status| [waited, status.exitstatus] }
      end
    end
  end

  def test_n21_two_fibers_wait_for_any_child
    got = []
    run_scheduler do
      pids = [spawn("sleep 0.05"), spawn("sleep 0.1")]
      2.times { Fiber.schedule { got << Process.wait(-1) } }
      Fiber.scheduler.run
      assert_equal pids, got
    end
  end

  def test_n21_no_child_at_all
    assert_raises(Errno::ECHILD) { Process.wait(-1, Process::WNOHANG) }
    run_scheduler do
      Fiber.schedule do
        [-1, 0, -Process.pid, Process.pid].each { |pid| assert_raises(Errno::ECHILD, pid.to_s) { Process.wait(pid) } }
        assert_equal [], Process.waitall
      end
    end
  end

  def test_n21_waitall
    run_scheduler do
      Fiber.schedule do
        pids = Array.new(5) { |i| spawn("sleep 0.0#{5 - i}; exit #{i}") }
        assert_equal pids.each_with_index.to_a, Process.waitall.map { |pid, status| [pid, status.exitstatus] }.sort
      end
    end
  end

  def test_n21_detach
    run_scheduler do
      Fiber.schedule do
        pid = spawn("sleep 0.05; exit 7")
        thread = Process.detach(pid)
        assert_equal [pid, 7], [thread.pid, thread.value.exitstatus]
      end
    end
  end

  def test_n21_without_waiting
    run_scheduler do
      Fiber.schedule do
        pid = spawn("sleep 0.1; exit 8")
        assert_nil Process.wait(pid, Process::WNOHANG)
        assert_nil Process.wait(-1, Process::WNOHANG)
        assert_equal 8, Process.wait2(pid)[1].exitstatus
      end
    end
  end

  def test_n21_a_child_that_stops_and_then_ends
    run_scheduler do
      Fiber.schedule do
        [->(pid) { pid }, ->(_) { -1 }].each do |whom|
          pid = spawn("kill -STOP $$; exit 9")
          _, status = Process.wait2(whom[pid], Process::WUNTRACED)
          assert_predicate status, :stopped?
          Process.kill(:CONT, pid)
          assert_equal 9, Process.wait2(whom[pid], Process::WUNTRACED)[1].exitstatus
        end
      end
    end
  end

  def test_megabytes_in_and_out
    text = "0123456789abcdef" * 65_536 * 2
    run_scheduler do
      4.times do
        Fiber.schedule do
          out, err, status = Open3.capture3("cat; echo done >&2", stdin_data: text)
          assert_bytes text, out
          assert_equal "done\n", err
          assert_predicate status, :success?
        end
      end
    end
  end
end

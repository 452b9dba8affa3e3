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

  def test_any_child_and_a_group
    run_scheduler do
      Fiber.schedule do
        pid = spawn("sleep 0.05; exit 4")
        assert_equal [pid, 4], Process.wait2(-1).then { |waited, status| [waited, status.exitstatus] }
        pid = spawn("sleep 0.05; exit 5", pgroup: true)
        assert_equal [pid, 5], Process.wait2(-pid).then { |waited, status| [waited, status.exitstatus] }
      end
    end
  end

  def test_a_process_that_is_no_child
    run_scheduler do
      Fiber.schedule { assert_raises(Errno::ECHILD) { Process.wait(Process.pid) } }
      Fiber.schedule { assert_raises(Errno::ECHILD) { Process.wait(2**22 + 1) } }
    end
  end

  # N5
  def test_a_timeout_leaves_the_child_to_be_waited_for
    run_scheduler do
      Fiber.schedule do
        pid = spawn("sleep 0.2; exit 6")
        assert_raises(Timeout::Error) { Timeout.timeout(0.02) { Process.wait(pid) } }
        _, status = Process.wait2(pid)
        assert_equal 6, status.exitstatus
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

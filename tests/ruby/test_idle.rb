# frozen_string_literal: true

require_relative "helper"

# Doing nothing costs nothing, and leaves Ruby to the others. N10
class TestIdle < ReactorTest
  def test_n10_an_idle_scheduler_uses_no_cpu_and_does_not_wake_up
    needs_linux "context switches from /proc"
    seconds = 2
    out = child_says(<<~RUBY, seconds)
      r, w = IO.pipe
      switches = -> { File.read("/proc/self/status")[/^voluntary_ctxt_switches:\\s*(\\d+)/, 1].to_i }
      Fiber.set_scheduler(scheduler = Reactor::Scheduler.new)
      Fiber.schedule { r.read }
      Fiber.schedule do
        sleep 0.2 # past the start, and past anything that looks once more after a while
        times = Process.times
        before = switches.()
        sleep ARGV[0].to_i
        after = switches.()
        now = Process.times
        puts now.utime + now.stime - times.utime - times.stime, after - before
        w.close
      end
    RUBY
    used, switched = out.split
    note format("asleep for %d s: %.2f %% CPU, %d voluntary switches", seconds, used.to_f / seconds * 100, switched.to_i)
    assert_operator used.to_f, :<, seconds * 0.01
    assert_operator switched.to_i, :<, 20
  end

  # Ratio: a thread that counts gets on with it while the scheduler sleeps.
  def test_n10_other_threads_run_meanwhile
    count = lambda do |limit|
      n = 0
      n += 1 until (n % 1000).zero? && clock > limit
      n
    end
    count.(clock + 0.05)
    alone = Thread.new { count.(clock + 0.3) }.value
    counted = nil
    run_scheduler do
      Fiber.schedule { sleep 0.4 }
      counter = Thread.new { count.(clock + 0.3) }
      Fiber.schedule { counted = counter.value }
    end
    raise TooSlow, "counted to #{counted}, and to #{alone} without a scheduler" unless counted > alone * 0.4
  end

  def test_a_busy_thread_does_not_starve_the_scheduler
    turns = 0
    run_scheduler do
      stop = false
      busy = Thread.new { nil until stop }
      Fiber.schedule { 10.times { sleep 0.001; turns += 1 }; stop = true; busy.join }
    end
    assert_equal 10, turns
  end

  # By itself, the VM would let such a thread go on each 100 ms.
  def test_a_busy_scheduler_does_not_starve_a_thread_that_hardly_wants_anything
    naps = []
    naps << naps_beside_a_ping(0.4) until naps.size == 5 || naps.last.to_i >= 20
    assert_operator naps.last, :>=, 20, "naps of 1 ms in 0.4 s: #{naps.join(", ")}"
  end

  def naps_beside_a_ping(seconds)
    naps = 0
    run_scheduler do
      over = clock + seconds
      napper = Thread.new { sleep(0.001) && naps += 1 until clock > over }
      near, far = UNIXSocket.pair
      Fiber.schedule { (far.write(far.readpartial(1)) while true) rescue far.close }
      Fiber.schedule do
        near.write("x") && near.readpartial(1) until clock > over
        near.close
        napper.join
      end
    end
    naps
  end

  def test_waiting_on_a_descriptor_uses_no_cpu
    r, w = IO.pipe
    used = nil
    run_scheduler do
      Fiber.schedule { r.read }
      Fiber.schedule { IO.select([r], nil, nil, 0.4) }
      Fiber.schedule { sleep 0.1; before = cpu; sleep 0.4; used = cpu - before; w.close }
    end
    assert_operator used, :<, 0.1
  ensure
    r.close
  end

  # A descriptor that has hung up stays ready for ever; nobody wants it, so nobody spins on it.
  def test_a_hung_up_descriptor_nobody_waits_for_is_left_alone
    a, b = UNIXSocket.pair
    used = nil
    run_scheduler do
      Fiber.schedule do
        Fiber.schedule { b.write("x"); b.close }
        a.wait_readable
        before = cpu
        sleep 0.4
        used = cpu - before
      end
    end
    assert_operator used, :<, 0.1
  ensure
    a.close
  end

  # N1: waiting to write into a full pipe, while its reader is there but does not read.
  def test_n1_a_full_pipe_is_waited_for_without_spinning
    r, w = IO.pipe
    used = nil
    run_scheduler do
      Fiber.schedule { w.write("x" * 200_000) rescue nil }
      Fiber.schedule { sleep 0.05; before = cpu; sleep 0.4; used = cpu - before; r.close }
    end
    assert_operator used, :<, 0.1
  ensure
    w.close rescue nil
  end
end

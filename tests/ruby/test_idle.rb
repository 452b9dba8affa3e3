# frozen_string_literal: true

require_relative "helper"

# An idle scheduler uses no processor time and releases the GVL.
class TestIdle < ReactorTest
  def test_an_idle_scheduler_uses_no_cpu_and_does_not_wake_up
    needs_linux "context switches from /proc"
    seconds = 1
    out = child_says(<<~RUBY, seconds)
      r, w = IO.pipe
      switches = -> { File.read("/proc/self/status")[/^voluntary_ctxt_switches:\\s*(\\d+)/, 1].to_i }
      Fiber.set_scheduler(scheduler = Reactor::Scheduler.new)
      Fiber.schedule { r.read }
      Fiber.schedule do
        sleep 0.2 # after the start, and after the registry has rearmed the wait
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
    assert_operator used.to_f, :<, seconds * 0.03
    assert_operator switched.to_i, :<, 10
  end

  # In a child, because a GVL that is never released would stop all threads of the test. A counting thread wakes the scheduler at
  # the end. The sleeping thread's processor time does not depend on the machine's load.
  def test_an_idle_scheduler_releases_the_gvl
    counted, slept = child_says(<<~RUBY).split.map(&:to_f)
      used = -> { Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) }
      done = Queue.new
      Fiber.set_scheduler(Reactor::Scheduler.new)
      Fiber.schedule do
        before = used.()
        Thread.new { start = used.(); nil until used.() - start > 0.2; done << used.() - start }
        puts done.pop, used.() - before
      end
    RUBY
    assert_operator slept, :<, counted * 0.1, "seconds of processor time"
  end

  # Without the scheduler's yield, the VM would switch threads every 100 ms, which is tens of thousands of messages. Messages are
  # counted, because elapsed time depends on the machine's load, and processor time on how the library was built.
  def test_a_busy_scheduler_does_not_starve_a_thread_that_mostly_sleeps
    spent = []
    messages = 0
    run_scheduler do
      napper = Thread.new { 30.times { before = messages; sleep 0.001; spent << messages - before } }
      near, far = UNIXSocket.pair
      Fiber.schedule { (far.write(far.readpartial(1)) while true) rescue far.close }
      Fiber.schedule do
        near.write("x") && near.readpartial(1) && (messages += 1) while napper.alive?
        near.close
      end
    end
    assert_operator spent.sort[15], :<, 2_000, "messages that the fibers exchanged during a sleep of 1 ms"
  end

  # Processor time of this thread, which runs the scheduler, during a sleep.
  def spent_asleep(seconds = 0.3)
    before = thread_cpu
    sleep seconds
    thread_cpu - before
  end

  # Hundreds of times the cost of a sleep, but much less than a busy loop gets in 300 ms on a loaded machine.
  MAX_IDLE_CPU = 0.02

  # A descriptor that has hung up stays ready. The event loop must not spin when no fiber waits for it.
  def test_a_hung_up_descriptor_without_a_waiter_uses_no_cpu
    a, b = UNIXSocket.pair
    used = nil
    in_fiber do
      Fiber.schedule { b.write("x"); b.close }
      a.wait_readable
      used = spent_asleep
    end
    assert_operator used, :<, MAX_IDLE_CPU
  ensure
    a&.close
  end

  # The reading end is open, but no fiber reads.
  def test_waiting_to_write_to_a_full_pipe_uses_no_cpu
    r, w = IO.pipe
    used = nil
    run_scheduler do
      Fiber.schedule { w.write("x" * 200_000) rescue nil }
      Fiber.schedule { sleep 0.05; used = spent_asleep; r.close }
    end
    assert_operator used, :<, MAX_IDLE_CPU
  ensure
    w.close rescue nil
  end
end

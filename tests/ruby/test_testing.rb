# frozen_string_literal: true

require_relative "helper"
require "monitor"
require "net/http"
require "open3"
require "reactor/testing"

# Virtual time: sleeps take no real time, the order does not depend on the machine, input and output are real.
class TestTesting < ReactorTest
  # On a new thread, so a hang is detected; no descriptor may be left.
  def virtual(**options, &block)
    before = descriptors
    value = run_plain do
      Reactor::Testing.virtual_time(backend: BACKEND, **options) { |virtual_clock| instance_exec(virtual_clock, &block) }
    end
    assert_equal [], leaked_descriptors(before)
    value
  end

  def test_a_virtual_hour_takes_no_real_time
    assert_equal 3600.0, virtual { |time| sleep 3600; time.elapsed }
  end

  def test_fibers_run_in_the_order_of_their_times
    orders = Array.new(5) do
      log = []
      virtual do |time|
        Fiber.schedule { sleep 0.3; log << [:a, time.elapsed] }
        Fiber.schedule { sleep 0.1; sleep 0.2; log << [:b, time.elapsed] }
        Fiber.schedule { 100_000.times { _1 + 1 }; sleep 0.25; log << [:c, time.elapsed] }
        Fiber.schedule { sleep 86_400; log << [:d, time.elapsed] }
        5.times { |i| Fiber.schedule { sleep 1; log << [i, time.elapsed] } }
      end
      log
    end
    expected = [[:c, 0.25], [:a, 0.3], [:b, 0.3], *(0..4).map { |i| [i, 1.0] }, [:d, 86_400.0]]
    assert_equal [expected], orders.uniq
  end

  # Added as Floats to an uptime, these sums differ although they should be equal.
  def test_the_order_and_the_lengths_do_not_depend_on_the_uptime
    skip "time namespaces need Linux, root and unshare" unless linux? && Process.uid.zero? && system("unshare", "-T", "true", err: File::NULL)
    machine = Process.clock_gettime(Process::CLOCK_MONOTONIC).to_i - File.read("/proc/self/timens_offsets")[/^monotonic\s+(-?\d+)/, 1].to_i
    [100, 3 * 365 * 86_400].each do |uptime|
      said = child_says("exec('unshare', '-T', '--monotonic', '#{uptime - machine}', *ARGV)", RbConfig.ruby, "--disable-gems", "-w", "-I", LIB, "-e", <<~'RUBY')
        require "reactor/testing"
        Reactor::Testing.virtual_time(backend: ENV["REACTOR_BACKEND"].to_sym) do |time|
          Fiber.schedule { sleep 0.3; $stdout.write("a #{time.elapsed}\n") }
          Fiber.schedule { sleep 0.1; sleep 0.2; $stdout.write("b #{time.elapsed}\n") }
          Fiber.schedule { sleep 0.1r; sleep 0.2; $stdout.write("c #{time.elapsed}\n") }
        end
        $stdout.write("#{Process.clock_gettime(Process::CLOCK_MONOTONIC, :second)}\n")
      RUBY
      assert_equal "a 0.3\nb 0.3\nc 0.3\n", said.lines.first(3).join
      assert_in_delta uptime, said.lines.last.to_i, TEST_TIMEOUT
    end
  end

  # In real time a fiber that starts others yields after 2 ms.
  def test_a_fiber_that_starts_others_does_not_yield_however_long_it_takes
    log = []
    virtual do
      Fiber.schedule { sleep 0; log << :started }
      Fiber.schedule do
        2.times do
          now = -> { cpu }
          from = now.()
          nil until now.() > from + 0.003
          Fiber.schedule { sleep 1 }
        end
        log << :starts
      end
    end
    assert_equal %i[starts started], log
  end

  # In real time, a fiber that has run for half a millisecond is followed by a poll, which finds what is readable by then.
  def test_the_order_does_not_depend_on_how_long_a_fiber_computes
    orders = [0, 0.003].map do |seconds|
      log = []
      virtual do
        r, w = pipe
        Fiber.schedule { r.read(1); log << :reader }
        Fiber.schedule { sleep 1; w << "x"; from = cpu; nil until cpu > from + seconds; log << :writer }
        2.times { |i| Fiber.schedule { sleep 1; sleep 0; log << i } }
      end
      log
    end
    assert_equal(*orders)
  end

  def test_clocks_show_virtual_time
    virtual do |time|
      clocks = %i[CLOCK_REALTIME CLOCK_MONOTONIC].map { |name| Process.const_get(name) }
      read = -> { [*clocks.map { |id| Process.clock_gettime(id, :nanosecond) }, (Time.now.to_r * 1_000_000_000).to_i] }
      first = read.()
      assert_equal first, read.(), "virtual time stands still"
      real = Thread.new { Process.clock_gettime(Process::CLOCK_MONOTONIC) }.value
      assert_in_delta real, Process.clock_gettime(Process::CLOCK_MONOTONIC), 60, "virtual time starts at the real time"
      assert_equal 90, sleep(90)
      assert_equal first.map { |nanoseconds| nanoseconds + 90_000_000_000 }, read.()
      assert_equal 90.0, time.elapsed
      assert_operator Thread.new { Process.clock_gettime(Process::CLOCK_MONOTONIC) }.value, :<, real + 60, "other threads see real time"
      assert_equal 3600, Time.now(in: "+01:00").utc_offset
      assert_equal [Time.now, 3600, 2026], [Time.new, Time.new(in: "+01:00").utc_offset, Time.new(2026).year]
      assert_operator Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID), :<, 3600
      units = %i[nanosecond microsecond millisecond second float_microsecond float_millisecond float_second]
      shown = units.map { |unit| Process.clock_gettime(Process::CLOCK_MONOTONIC, unit) }
      assert_equal [Integer] * 4 + [Float] * 3, shown.map(&:class)
      [1e9, 1e6, 1e3, 1, 1e6, 1e3, 1].zip(shown).each { |scale, value| assert_in_delta shown.last, value / scale, 1.001 }
      assert_raises(ArgumentError) { Process.clock_gettime(Process::CLOCK_MONOTONIC, :fortnight) }
    end
    assert_nil Reactor::Testing.clock
    first = Time.now
    assert eventually { Time.now != first }, "real time goes on"
  end

  # Ruby reads the clock itself after these waits.
  def test_timeouts_of_locks_queues_and_threads
    virtual do |time|
      elapsed = lambda do |seconds, &block|
        before = time.elapsed
        value = block.call
        assert_equal seconds.to_f, time.elapsed - before
        value
      end
      queue = Queue.new
      assert_nil(elapsed.(10) { queue.pop(timeout: 10) })
      assert_nil(elapsed.(0) { queue.pop(timeout: 0) })
      Fiber.schedule { sleep 5; queue << :five }
      assert_equal :five, elapsed.(5) { queue.shift(timeout: 10) }
      sized = SizedQueue.new(1) << 1
      assert_nil(elapsed.(20) { sized.push(2, timeout: 20) })
      assert_equal 1, sized.pop(timeout: 1)
      assert_nil(elapsed.(30) { sized.deq(timeout: 30) })
      mutex = Mutex.new
      elapsed.(40) { mutex.synchronize { ConditionVariable.new.wait(mutex, 40) } }
      monitor = Monitor.new
      elapsed.(50) { monitor.synchronize { monitor.new_cond.wait(50) } }
      thread = Thread.new { Thread.stop }
      assert_nil(elapsed.(60) { thread.join(60) })
      thread.kill
      assert_same thread, Reactor::Testing.hold { thread.join(60) }
      assert_raises(ThreadError) { queue.pop(true) }
    end
  end

  def test_io_within_the_thread_completes_before_any_timeout
    r, w = pipe
    a, b = pair # as with pipes, written data can be read immediately
    virtual(settle: 0) do |time|
      Fiber.schedule { 100.times { w << "x"; sleep 1 } }
      Fiber.schedule { b.gets; sleep 10; b.puts "answer" }
      100.times { assert_equal "x", Timeout.timeout(1.5) { r.read(1) } }
      assert_equal 99.0, time.elapsed
      a.puts "question"
      assert_equal "answer\n", Timeout.timeout(11) { a.gets }
      assert_nil IO.select([a, r], nil, nil, 5)
      assert_nil a.wait_readable(5)
      a.timeout = 5
      assert_raises(IO::TimeoutError) { a.read(1) }
      assert_equal 124.0, time.elapsed
    end
  end

  def test_a_server_that_waits_for_clients_does_not_stop_the_clock
    server = track(TCPServer.new("127.0.0.1", 0))
    virtual do |time|
      accepting = Fiber.schedule do
        loop do
          client = server.accept
          Fiber.schedule { client.gets; sleep 20; client.close } # no answer
        end
      end
      http = Net::HTTP.new("127.0.0.1", server.addr[1])
      http.read_timeout = 15
      http.max_retries = 0
      Reactor::Testing.hold { http.start }
      assert_raises(Net::ReadTimeout) { http.get("/") }
      assert_equal 15.0, time.elapsed
      sleep 3600
      accepting.kill
    end
  end

  # A child needs real time: `settle` seconds by default, more in `hold`.
  def test_children_and_threads_take_real_time
    virtual(settle: TEST_TIMEOUT) do |time|
      assert_equal "x\n", Timeout.timeout(1) { `echo x` }
      Timeout.timeout(1) { Process.wait(spawn(*shell("sleep 0.05"))) }
      assert_equal 0.0, time.elapsed
      queue = Queue.new
      Thread.new { queue << :thread }
      assert_equal :thread, queue.pop(timeout: 1)
    end
    virtual do |time|
      Fiber.schedule { sleep 0.001 }
      assert_equal "x\n", Reactor::Testing.hold { Timeout.timeout(0.01) { `sleep 0.05; echo x` } }
      assert_equal 0.0, time.elapsed
    end
  end

  def test_a_slow_answer_is_timed_out
    virtual(settle: 0.01) do |time|
      r, w = IO.pipe
      pid = spawn(*shell("read line; true"), in: r)
      assert_raises(Timeout::Error) { Timeout.timeout(60) { Process.wait(pid) } }
      assert_equal 60.0, time.elapsed
      w.puts
      [r, w].each(&:close)
      assert_equal pid, Reactor::Testing.hold { Process.wait(pid) }
    end
  end

  def test_an_error_of_the_block_cancels_the_fibers
    log = []
    error = assert_raises(KeyError) do
      virtual do
        Fiber.schedule { begin; loop { sleep 1 }; ensure log << :ensure; end }
        sleep 5
        raise KeyError, "mine"
      end
    end
    assert_equal "mine", error.message
    assert_match(/test_testing\.rb/, error.backtrace.first)
    assert_equal [:ensure], log
    assert_raises(Minitest::Assertion) { virtual { sleep 1; flunk } }
  end

  def test_an_error_of_another_fiber_is_raised
    assert_raises(KeyError) do
      virtual do
        Thread.current.report_on_exception = false
        Fiber.schedule { sleep 1; raise KeyError }
        sleep 2
      end
    end
  end

  def test_time_is_real_after_the_block_and_in_other_threads
    virtual { sleep 10 }
    run_scheduler { Fiber.schedule { assert_operator elapsed { sleep 0.02 }, :>=, 0.02 } }
    assert_equal 3, Reactor::Testing.hold { 3 }
    refute_respond_to Object.new, :sleep
    assert_nil Queue.new.pop(timeout: 0.001)
  end

  def test_a_thread_with_a_scheduler_is_refused
    run_scheduler do
      assert_raises(RuntimeError) { Reactor::Testing.virtual_time { flunk } }
    end
    assert_raises(ArgumentError) { Reactor::Testing.virtual_time }
    assert_raises(ArgumentError) { virtual(settle: -1) { flunk } }
    assert_nil Fiber.scheduler
  end

  # Sleepers that are due at the same time, fibers woken by an unlock or a poll, and fibers that yield.
  def shuffled(seed)
    log = []
    virtual(settle: 0) do
      Fiber.scheduler.shuffle(seed)
      r, w = pipe
      queue = Queue.new
      4.times { |i| Fiber.schedule { sleep 1; log << i; sleep 0; log << i } }
      3.times { |i| Fiber.schedule { queue.pop; log << "pop #{i}" } }
      Fiber.schedule { r.read(1); log << :read }
      Fiber.schedule { sleep 1; 3.times { queue << 1 }; w << "x"; log << :written }
      sleep 2
      log << Fiber.scheduler.shuffled
    end
    log
  end

  def test_a_seed_decides_the_order
    orders = Array.new(30) { |seed| shuffled(seed) }
    assert_equal orders.first(5), Array.new(5) { |seed| shuffled(seed) }
    assert_operator orders.uniq.size, :>, 20
    assert_equal [orders.first[..-2].sort_by(&:to_s)], orders.map { |order| order[..-2].sort_by(&:to_s) }.uniq
    assert_operator orders.map(&:first).uniq.size, :>, 3
  end

  def test_a_new_fiber_runs_at_once_and_its_starter_next_in_each_order
    20.times do |seed|
      log = []
      virtual(settle: 0) do
        Fiber.scheduler.shuffle(seed)
        3.times { Fiber.schedule { sleep 1; log << :other } }
        sleep 1
        Fiber.schedule { log << 1; sleep 0 }
        log << 2
      end
      assert_equal 2, log[log.index(1) + 1]
    end
  end

  SUITE = <<~'RUBY'
    require "reactor"
    at_exit do
      log = []
      Reactor.run do
        gate = Thread::Queue.new
        4.times { |i| Fiber.schedule { gate.pop; log << i } }
        gate.close # all four are ready at once
      end
      $stdout.write(log.join)
      exit(ARGV.empty?)
    end
  RUBY

  def test_a_variable_shuffles_any_suite_and_a_drawn_seed_is_printed
    run = ->(seed, *arguments) { Open3.capture3({ "REACTOR_SHUFFLE" => seed, "REACTOR_BACKEND" => BACKEND.to_s }, RbConfig.ruby, "-I", LIB, "-e", SUITE, *arguments) }
    assert_equal ["0123", ""], run.("").first(2)
    orders = Array.new(8) { |seed| run.(seed.to_s).first(2) }
    assert_operator orders.uniq.size, :>, 1
    assert_equal [""], orders.map(&:last).uniq
    out, err = run.("drawn", "fails")
    seed = err[/\AREACTOR_SHUFFLE=(\d+)\n\z/, 1]
    assert_equal out, run.(seed).first
    assert_match(/\AREACTOR_SHUFFLE=\d+\n\z/, run.("drawn")[1])
    %w[-1 100000000000000000000].each { |other| assert_equal ["", 4], run.(other).then { |order, warned, _| [warned, order.size] } }
  end

  def test_a_deadlock_is_detected_in_virtual_time
    error = assert_raises(Reactor::VM::FATAL) { run_plain_and_alone { Reactor::Testing.virtual_time(backend: BACKEND) { sleep 5; Queue.new.pop } } }
    assert_match(/Deadlock/, error.message)
  end

  # The thread is joined without a time limit, so no other thread could wake a fiber.
  def run_plain_and_alone(&block) = Thread.new { Thread.current.report_on_exception = false; block.call }.value
end

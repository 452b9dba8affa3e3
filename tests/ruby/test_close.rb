# frozen_string_literal: true

require_relative "helper"
require "timeout"
require "reactor/testing"

# IO#close raises IOError in the fibers that wait for this IO object, and in no other, on every Ruby.
class TestClose < ReactorTest
  MESSAGE = "stream closed in another thread"

  # Longer than the idle time after which the registry re-arms a wait.
  REARM_TIME = 0.25

  def closed
    yield
    :returned
  rescue IOError => e
    e.message
  end

  # Waits of every kind, for IOs that the block closes.
  def check_close
    reads = [pipe, pair, tcp_pair].map(&:first)
    server = track(TCPServer.new("127.0.0.1", 0))
    socket = track(UDPSocket.new.tap { |udp| udp.bind("127.0.0.1", 0) })
    selected = [pair, pair].map(&:first)
    waits = reads.flat_map { |io| [-> { io.readpartial(1) }, -> { io.wait_readable }] } + [-> { server.accept }, -> { socket.recvfrom(1) }]
    log, of_select = [], nil
    run_scheduler do |scheduler|
      waits.each { |wait| Fiber.schedule { log << closed(&wait) } }
      Fiber.schedule { of_select = outcome { IO.select(selected) } }
      yield [*reads, server, socket, selected.last]
      scheduler.run
    end
    assert_equal [[MESSAGE] * waits.size, [:raised, IOError]], [log, of_select]
  end

  def test_a_close_by_a_fiber_raises_in_the_waiting_fibers
    check_close { |ios| Fiber.schedule { sleep REARM_TIME; ios.each(&:close) } }
  end

  def test_a_close_does_not_raise_in_waiters_of_another_io_on_the_descriptor
    log = []
    reading, writing = pair
    twin = UNIXSocket.for_fd(reading.fileno).tap { |io| io.autoclose = false }
    run_scheduler do
      Fiber.schedule { log << twin.readpartial(1) }
      Fiber.schedule { log << closed { reading.readpartial(1) } }
      Fiber.schedule do
        reading.autoclose = false # the descriptor stays open
        reading.close
        writing << "x"
      end
    end
    assert_equal [MESSAGE, "x"], log.sort_by(&:size).reverse
  ensure
    IO.for_fd(twin.fileno).close if twin && !twin.closed?
  end

  def test_a_close_does_not_raise_in_waiters_of_other_ios_or_of_the_reused_number
    log = []
    run_scheduler do
      further = Array.new(50) { pair }
      further.each { |left, _| Fiber.schedule { log << left.readpartial(1) } }
      reading, = pair
      Fiber.schedule { closed { reading.readpartial(1) } }
      Fiber.schedule do
        number = reading.fileno
        reading.close
        sleep 0
        # The next descriptor gets the lowest free number. A collection may have freed lower ones.
        recycled = pair until recycled&.any? { |io| io.fileno == number }
        again, peer = recycled.sort_by { |io| io.fileno == number ? 0 : 1 }
        Fiber.schedule { log << again.readpartial(1) }
        peer << "r"
        further.each { |_, right| right << "o" }
      end
    end
    assert_equal ["o"] * 50 + ["r"], log.sort
  end

  # Counts calls of Ruby methods. (The extension's own steps do not show.)
  def test_a_close_makes_no_more_calls_if_more_fibers_wait_for_other_ios
    run_scheduler do |scheduler|
      GC.disable # a collection would end the look-ups for the schedulers of earlier tests
      counts = [1, 0, 99].map do |more|
        more.times { pipe.first.then { |io| Fiber.schedule { closed { io.wait_readable } } } }
        closing, = pair
        calls = 0
        trace = TracePoint.new(:call, :c_call) { calls += 1 }
        Fiber.schedule { trace.enable(target_thread: Thread.current) { closing.close } }
        calls
      end
      assert_operator scheduler.live, :>=, 100
      assert_equal counts[1], counts[2] # the first close may do what is done once
      @ios.each { |io| io.close unless io.closed? }
    end
  ensure
    GC.enable
  end

  # Ruby 4.1 calls fiber_interrupt with an object that responds to alive?, raise and transfer instead of a fiber.
  Proxy = Struct.new(:fiber, :raised) do
    def alive? = raised.nil?

    def raise(exception)
      self.raised = exception
      fiber.raise(exception)
    end
  end

  # They would hasten the next collection, which scans the stack of each parked fiber.
  def test_closes_by_the_thread_of_the_only_scheduler_make_no_objects
    unused, pipes = Array.new(2) { Array.new(100) { IO.pipe } }
    made = []
    in_fiber do
      GC.start # takes the schedulers of other tests
      pipes.each { |reader, _| Fiber.schedule { closed { reader.read(1) } } }
      IO.pipe.each(&:close)
      [unused, pipes].each do |ios|
        before = GC.stat(:total_allocated_objects)
        ios.each { |reader, _| reader.close }
        made << (GC.stat(:total_allocated_objects) - before)
      end
    end
    made.pop if RUBY_VERSION >= "4.0" # the VM interrupts the readers, too
    made.each { |objects| assert_operator objects, :<, 100 }
  ensure
    [*unused, *pipes].flatten.each(&:close)
  end

  def test_fiber_interrupt_accepts_a_proxy_of_a_fiber
    log = []
    reading, = pair
    run_scheduler do |scheduler|
      waiting = Fiber.schedule { log << closed { reading.wait_readable } }
      proxy = Proxy.new(waiting)
      thread = Thread.new { sleep REARM_TIME; scheduler.fiber_interrupt(proxy, IOError.new("through a proxy")) }
      scheduler.run
      thread.join
    end
    assert_equal ["through a proxy"], log
  end

  # Two descriptor numbers are reused for each pair: each use is registered once, which is the only system call.
  def test_a_reused_descriptor_number_is_registered_once_and_not_renewed
    stats = nil
    in_fiber do |scheduler|
      20.times do
        left, right = UNIXSocket.pair
        Fiber.schedule { right.readpartial(1); right.close }
        sleep 0
        left << "x"
        sleep 0 until right.closed?
        left.close
      end
      stats = scheduler.stats
    end
    registered, renewed, closed = stats.values_at(:registered, :renewed, :closed)
    assert_equal [0, registered], [renewed, closed]
    assert_includes 15..20, registered # a reader that yielded found its byte there
  end

  def test_io_close_closes_pipes_and_sockets_but_no_lingering_socket_or_file
    lingering = track(TCPServer.new("127.0.0.1", 0))
    lingering.setsockopt(Socket::Option.linger(true, 1))
    file = track(File.open(__FILE__))
    run_scheduler do |scheduler|
      (pipe + pair).each do |io|
        descriptor = io.dup.tap { |copy| copy.autoclose = false }.fileno
        assert scheduler.io_close(descriptor)
        assert_raises(Errno::EBADF) { IO.for_fd(descriptor, autoclose: false) }
      end
      [lingering, file].each do |io|
        refute scheduler.io_close(io.fileno)
        refute_nil IO.for_fd(io.fileno, autoclose: false)
      end
    end
  end

  # IO#close closes the descriptor even if it is interrupted while a worker does the blocking operation.
  def test_an_interrupted_close_leaks_no_descriptor
    before = descriptors
    run_plain do
      Fiber.set_scheduler(Reactor::Scheduler.new(policy: :always))
      Fiber.schedule do
        100.times do
          ios = [*IO.pipe, File.open(__FILE__), File.open(File::NULL, "w")]
          closer = Fiber.schedule { ios.each { |io| begin io.close; rescue IndexError; end } }
          closer.raise(IndexError) if closer.alive?
        end
      end
    end
    assert_equal [], surplus_descriptors(before)
  end

  # The IOError belongs to a wait that another error has ended.
  def test_a_close_does_not_raise_in_the_next_wait_of_its_waiter
    log = []
    reading, = pair
    other, writing = pair
    run_scheduler do
      waiter = Fiber.schedule do
        begin
          reading.readpartial(1)
        rescue IndexError
          log << :raised
        end
        log << closed { other.readpartial(1) }
        sleep 0.001
        log << :slept
      end
      Fiber.schedule do
        # The first step of IO#close. On Ruby 3.4 a worker may run close(2), and the waiter would run before the raise.
        Reactor::Internal.announce_close(reading)
        waiter.raise(IndexError)
        writing << "x"
      end
    end
    assert_equal %i[raised returned slept], log
  end

  # IO.select polls without the GVL, so the close may come in between.
  def test_a_close_during_the_poll_of_select_raises_in_select
    seen = []
    in_fiber do
      300.times do |i|
        reading, writing = IO.pipe
        closer = Thread.new { Thread.pass if i.odd?; reading.close }
        seen << outcome { IO.select([reading]) }
        closer.join
        writing.close
      end
    end
    assert_equal [[:raised, IOError]], seen.uniq
  end

  # Up to Ruby 3.4, the closer waits on a mutex whose class the VM has cleared for threads that are in a list on its stack.
  # Calling a method on the mutex, or ending the wait by an error, crashes the process.
  INTERRUPTED_CLOSES = <<~'RUBY'
    Thread.report_on_exception = false
    Fiber.set_scheduler(Reactor::Scheduler.new)
    Fiber.schedule do
      rounds = Array.new(50) do |round|
        reading, writing = IO.pipe
        threads = Array.new(3) { Thread.new { reading.read(1) rescue $!.class } }
        Thread.pass until threads.all?(&:stop?)
        begin
          Timeout.timeout(round.even? ? 0.00001 : 0.0001) { reading.close }
        rescue Timeout::Error
          reading.close
        end
        writing.close
        [reading.closed?, *threads.map(&:value)]
      end
      puts rounds.uniq.inspect
    end
  RUBY

  def test_an_error_during_the_close_of_an_io_that_threads_read_leaves_the_process_alive
    assert_equal "[[true, IOError, IOError, IOError]]\n", child_says("require 'timeout'\n#{INTERRUPTED_CLOSES}")
  end

  def test_a_fiber_error_during_the_close_of_an_io_that_threads_read_is_raised_when_the_io_is_closed
    out = child_says(<<~'RUBY')
      Thread.report_on_exception = false
      Fiber.set_scheduler(Reactor::Scheduler.new)
      outcomes = Array.new(20) do
        reading, writing = IO.pipe
        thread = Thread.new { reading.read(1) rescue $!.class }
        Thread.pass until thread.stop?
        log = []
        closer = Fiber.schedule do
          reading.close
          log << reading.closed?
          sleep
        rescue IndexError
          log << :raised
        end
        closer.raise(IndexError) if closer.alive?
        Fiber.scheduler.run
        log
      end
      puts outcomes.uniq.inspect
    RUBY
    assert_equal "[[true, :raised]]\n", out
  end

  # The result of the block and the turns of the loop, when a timeout of 1 s is around the block and a fiber calls `ends` after 2
  # s.
  def beside_a_timeout(ends = -> {}, &block)
    run_plain do
      Reactor::Testing.virtual_time do
        Fiber.schedule { sleep 2; ends.call }
        before = Fiber.scheduler.stats[:turns]
        [outcome { Timeout.timeout(1, &block) }, Fiber.scheduler.stats[:turns] - before]
      end
    end
  end

  # Locks a mutex again, which another fiber has for two seconds. An exception must not end this wait, either.
  def lock_again
    mutex = Thread::Mutex.new.tap(&:lock)
    Fiber.schedule { mutex.synchronize { sleep 2 } }
    mutex.sleep(0)
    mutex.unlock
    :locked
  end

  def test_a_timeout_during_a_wait_that_must_not_end_is_raised_after_it_and_costs_no_turns
    ended, turns = beside_a_timeout { lock_again }
    assert_equal [:raised, Timeout::Error], ended, "no wait follows"
    assert_operator turns, :<, 50
    after = nil
    ended, = beside_a_timeout do
      after = lock_again
      sleep 3
      after = :slept
    end
    assert_equal [[:raised, Timeout::Error], :locked], [ended, after], "a wait follows"
    ended, = beside_a_timeout { lock_again.then { Timeout.timeout(5) { :inner } } }
    assert_equal [:raised, Timeout::Error], ended, "another timeout follows"
    ended, = beside_a_timeout { lock_again && raise(IndexError) }
    assert_equal [:raised, IndexError], ended, "an error follows"
  end

  # The cancellation ends the wait, and the VM begins it again, because the reader still has the IO.
  def test_a_signal_while_a_close_outlasts_a_timeout_costs_no_turns
    skip "the close waits for no thread" if RUBY_VERSION >= "4.0"
    turns = run_child(<<~'RUBY').out
      require "timeout"
      Fiber.set_scheduler(scheduler = Reactor::Scheduler.new)
      reading, = IO.pipe
      elapsed = Thread::Queue.new
      reader = Thread.new { reading.read(1) rescue sleep }
      Thread.pass until reader.stop?
      Thread.new do
        elapsed.pop
        Process.kill(:TERM, $$)
        sleep 0.1
        before = scheduler.stats[:turns]
        sleep 0.1
        puts scheduler.stats[:turns] - before
        $stdout.flush
        exit!
      end
      Fiber.schedule { sleep 0.1; elapsed << true }
      Fiber.schedule { Timeout.timeout(0.01) { reading.close } }
      scheduler.run
    RUBY
    assert_operator Integer(turns), :<, 50
  end

  # Up to Ruby 3.4, the reader keeps the VM's mutex, on which the closer waits, until the reader's thread ends.
  def test_a_close_that_waits_for_the_end_of_a_thread_costs_no_turns
    reading, = pipe
    leave = Thread::Queue.new
    reader = Thread.new { reading.read(1) rescue leave.pop }
    until_asleep(reader)
    ended, turns = beside_a_timeout(-> { leave << 1 }) { reading.close }
    # From 4.0 on, the reader lets go as soon as its thread runs: before or after the virtual second.
    assert_includes [[:raised, Timeout::Error], *([[:value, nil]] if RUBY_VERSION >= "4.0")], ended
    assert_operator turns, :<, 50
    assert_predicate reading, :closed?
    reader.join
  end

  # The workaround: the VM wakes a closer without a scheduler in another way.
  def test_a_thread_without_a_scheduler_closes_an_io_whose_reader_continues
    reading, = pipe
    leave = Thread::Queue.new
    reader = Thread.new { reading.read(1) rescue leave.pop }
    until_asleep(reader)
    run_scheduler do
      Fiber.schedule { Thread.new { reading.close }.join; leave << :closed }
    end
    assert_equal :closed, reader.value
  end

  # What reaches the main program while it waits for the users of an IO that it closes. Each is a program and what it prints.
  DURING_A_CLOSE = {
    "raise in a trap handler" => [<<~RUBY, "ArgumentError"],
      trap(SIGNAL) { raise ArgumentError }
      reader { Process.kill(SIGNAL, $$) }
    RUBY
    "Thread#raise" => ["main = Thread.current; reader { main.raise(KeyError) }", "KeyError"],
    "a close by C code" => ["reader { nil }", "closed"]
  }.freeze

  DURING_A_CLOSE.each do |name, (code, expected)|
    define_method(:"test_#{name.tr("^a-zA-Z", "_")}_while_the_main_program_closes_what_a_thread_reads") do
      skip "Ruby 3.3 does not wake the closer" if RUBY_VERSION < "3.4" && expected == "closed"
      said = child_says(<<~RUBY)
        SIGNAL = "USR1"
        CLOSE = IO.instance_method(#{expected == "closed" ? ":close" : "(Reactor::Scheduler.new.close; :close)"}) # Ruby's, or the patched one
        Fiber.set_scheduler(Reactor::Scheduler.new)
        $reading, = IO.pipe
        def reader(&meanwhile)
          Thread.new { begin; $reading.read(1); rescue IOError; meanwhile.call; end }
          Thread.pass until Thread.list.last.stop?
        end
        #{code}
        begin
          CLOSE.bind_call($reading)
          1_000.times { sleep 0 } # where an error that was kept comes at the latest
          print "closed"
        rescue ArgumentError, KeyError => error
          print error.class
        end
      RUBY
      assert_equal expected, said
    end
  end
end

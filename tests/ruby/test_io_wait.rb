# frozen_string_literal: true

require_relative "helper"

# The io_wait hook: readiness of one descriptor.
class TestIOWait < ReactorTest
  def test_only_the_ready_events_are_returned
    a, b = pair
    in_fiber do |scheduler|
      assert_equal IO::WRITABLE, scheduler.io_wait(a, IO::READABLE | IO::WRITABLE, nil)
      b << "x"
      assert_equal IO::READABLE | IO::WRITABLE, scheduler.io_wait(a, IO::READABLE | IO::WRITABLE, nil)
      assert_equal IO::READABLE, scheduler.io_wait(a, IO::READABLE, nil)
      assert_equal IO::READABLE, scheduler.io_wait(a, IO::READABLE), "as libraries call it"
      { 1 => [a], 4 => [a, 1, nil, nil] }.each do |count, arguments|
        error = assert_raises(ArgumentError) { scheduler.io_wait(*arguments) }
        assert_equal "wrong number of arguments (given #{count}, expected 2..3)", error.message
      end
    end
  end

  def test_a_timeout_returns_false_and_is_not_early
    r, = pipe
    in_fiber do |scheduler|
      seconds = elapsed { assert_equal false, scheduler.io_wait(r, IO::READABLE, 0.05) }
      assert_operator seconds, :>=, 0.05
      assert_nil r.wait_readable(0.001)
      assert_nil r.wait(IO::READABLE, 0.001)
    end
  end

  def test_a_zero_timeout_polls_the_descriptor_and_does_not_park
    r, w = pipe
    log = []
    run_scheduler do
      Fiber.schedule { sleep 0; log << :other }
      Fiber.schedule do
        assert_nil r.wait_readable(0)
        w << "x"
        assert_same r, r.wait_readable(0)
        assert_same r, r.wait_readable(0), "again: nothing was read"
        r.readpartial(9)
        assert_nil r.wait_readable(0)
        assert_same w, w.wait_writable(0)
        log << :polled
      end
    end
    assert_equal %i[polled other], log
  end

  def test_wait_writable_times_out_on_a_full_socket
    a, b = pair
    fill(a)
    in_fiber do
      assert_nil a.wait_writable(0.02)
      Fiber.schedule { sleep 0; b.readpartial(1 << 20) while b.wait_readable(0) }
      assert_same a, a.wait_writable(TEST_TIMEOUT)
    end
  end

  # On Windows workers wait with a handle of their own.
  def test_nothing_of_a_pipe_outlives_its_close
    waits = [->(io) { io.read(1) }, lambda(&:wait_readable), ->(io) { IO.select([io]) }]
    waits.product([lambda(&:close), ->(io) { Thread.new { io.close }.join }]) do |wait, close|
      r, w = pipe
      run_scheduler do
        Fiber.schedule { assert_raises(IOError) { wait.call(r) } }
        Fiber.schedule { close.call(r); assert_raises(Errno::EPIPE) { Fiber.blocking { w.write("x") } } } # before another fiber runs
      end
    end
    r, w = pipe
    run_scheduler do
      Fiber.schedule { assert_raises(IOError) { w.write("x" * (1 << 20)) } }
      Fiber.schedule { w.close; r.read }
    end
  end

  def test_a_hang_up_returns_the_requested_events
    r, w = pipe
    w.close
    in_fiber { assert_same r, r.wait_readable(TEST_TIMEOUT) }
    r2, w2 = pipe
    r2.close
    in_fiber { assert_same w2, w2.wait_writable(TEST_TIMEOUT) }
  end

  # The read after the data must see the end of file.
  def test_data_and_end_of_file_in_one_event
    a, b = tcp_pair
    log = []
    run_scheduler do
      Fiber.schedule { log << a.readpartial(100) << a.gets }
      Fiber.schedule { b.write("bye"); b.close }
    end
    assert_equal ["bye", nil], log
  end

  def test_a_reader_and_a_writer_wait_on_one_descriptor
    a, b = pair
    full = fill(a)
    log = []
    run_scheduler do
      Fiber.schedule { a.wait_readable(TEST_TIMEOUT) and log << :readable }
      Fiber.schedule { a.wait_writable(TEST_TIMEOUT) and log << :writable }
      Fiber.schedule do
        b << "x"
        sleep 0.001 while log.empty?
        taken = 0
        taken += b.readpartial(1 << 20).bytesize while taken < full
      end
    end
    assert_equal %i[readable writable], log
  end

  def test_a_wait_for_both_directions_ends_by_either
    feeds = { IO::READABLE => ->(b, _) { b << "x" },
              IO::WRITABLE => ->(b, full) { full -= b.readpartial(1 << 20).bytesize while full.positive? } }
    feeds.each do |event, feed|
      a, b = pair
      full = fill(a)
      seen = nil
      run_scheduler do |scheduler|
        Fiber.schedule { seen = scheduler.io_wait(a, IO::READABLE | IO::WRITABLE, nil) }
        Fiber.schedule { until_parked(scheduler, 1); feed.call(b, full) }
      end
      assert_equal event, seen
    end
  end

  # One event wakes both fibers. The first one raises in the other before that one has run.
  def test_a_waiter_that_raises_in_another_waiter_of_the_descriptor_ends_its_wait
    a, b = pair
    log = []
    run_scheduler do |scheduler|
      fibers = Array.new(2) do |i|
        Fiber.schedule do
          a.wait_readable
          log << :readable
          fibers[1 - i].raise(IndexError) if fibers[1 - i].alive?
        rescue IndexError
          log << (elapsed { sleep 0.01 } >= 0.01) # the event ends no later wait
        end
      end
      Fiber.schedule { until_parked(scheduler, 2); b << "x" }
    end
    assert_equal [:readable, true], log
  end

  def test_priority_is_urgent_data
    needs_linux "urgent data" unless windows?
    a, b = tcp_pair
    log = []
    run_scheduler do |scheduler|
      Fiber.schedule { log << a.wait_priority(TEST_TIMEOUT) }
      Fiber.schedule { log << IO.select([a], nil, [a], TEST_TIMEOUT).map(&:size) }
      Fiber.schedule { until_parked(scheduler, 2); log << b.wait_priority(0.001); b.send("!", Socket::MSG_OOB) }
    end
    assert_nil log.shift
    assert_empty [a, [0, 0, 1]] - log
    assert_equal "!", a.recv_nonblock(1, Socket::MSG_OOB)
  end

  def test_regular_files_and_directories_are_ready
    File.open(__FILE__) do |file|
      in_fiber do
        assert_same file, file.wait_readable(TEST_TIMEOUT)
        assert_equal File.read(__FILE__), file.read
      end
    end
    File.open(File::NULL, "r+") { |null| in_fiber { assert null.wait_writable(TEST_TIMEOUT); assert_equal 3, null.syswrite("abc") } }
  end

  def test_a_reused_descriptor_after_a_wait_that_timed_out
    log = []
    numbers = []
    in_fiber do
      20.times do |i|
        r, w = IO.pipe
        numbers << r.fileno
        assert_nil r.wait_readable(0.001)
        [r, w].each(&:close)
        r, w = IO.pipe
        numbers << r.fileno
        writer = Fiber.schedule { sleep 0.001; w << i.to_s }
        assert r.wait_readable(TEST_TIMEOUT)
        log << r.readpartial(9)
        sleep 0.001 while writer.alive? # a worker may have written what the writer does not know yet
        [r, w].each(&:close)
      end
    end
    assert_equal (0...20).map(&:to_s), log
    assert_operator numbers.uniq.size, :<, numbers.size, "the test needs numbers that repeat"
  end

  # C extensions make an IO object for each call.
  def test_a_second_io_object_on_the_same_descriptor
    r, w = pipe
    log = []
    run_scheduler do
      Fiber.schedule do
        3.times do
          IO.for_fd(r.fileno, autoclose: false).wait_readable(TEST_TIMEOUT)
          log << r.readpartial(9)
        end
      end
      Fiber.schedule { %w[a b c].each { |s| w << s; sleep 0.001 until log.last == s } }
    end
    assert_equal %w[a b c], log
  end

  # The kernel reports an edge only once, but unread data must stay readable.
  def test_a_descriptor_with_unread_data_stays_readable
    a, b = pair
    in_fiber do
      b << "abc"
      "abc".each_char { |c| assert a.wait_readable(TEST_TIMEOUT); assert_equal c, a.recv(1) }
      assert_nil a.wait_readable(0.002)
    end
  end

  # The second fiber is woken for data that the first one has already read: it must wait again.
  def test_a_read_waits_on_if_another_fiber_took_the_data
    r, w = pipe
    log = []
    run_scheduler do
      2.times { |i| Fiber.schedule { log << [i, r.readpartial(1)] } }
      Fiber.schedule { w << "a"; sleep 0.001 while log.empty?; 3.times { sleep 0.001 }; w << "b" }
    end
    assert_equal %w[a b], log.map(&:last)
  end

  # accept and the receiving methods call io_wait after EAGAIN, so the reactor knows that the descriptor is not ready.
  def test_a_wait_after_eagain_of_accept_or_recvfrom_does_not_reregister
    skip_under_stress
    server = track(TCPServer.new("127.0.0.1", 0))
    one = track(UDPSocket.new).tap { |socket| socket.bind("127.0.0.1", 0) }
    other = track(UDPSocket.new).tap { |socket| socket.bind("127.0.0.1", 0) }
    one.connect("127.0.0.1", other.addr[1])
    other.connect("127.0.0.1", one.addr[1])
    run_scheduler do |scheduler|
      Fiber.schedule { 50.times { other.recvfrom(9); other.send("pong", 0); other.recvmsg; other.send("pong", 0) } }
      Fiber.schedule { 100.times { one.send("ping", 0); assert_equal "pong", one.recv(9) } }
      Fiber.schedule { 20.times { server.accept.close } }
      Fiber.schedule { 20.times { sleep 0.001; TCPSocket.new("127.0.0.1", server.addr[1]).close } }
      scheduler.run
      waits, skipped = scheduler.stats.values_at(:waits, :skipped)
      assert_operator waits - skipped, :<, waits / 4, "waits that needed a system call"
    end
  end

  # In a child, because sockets made before the first scheduler are cared for by that one. A method that stops the thread makes
  # the child hang, because another fiber makes it return.
  def test_sockets_given_in_blocking_mode_park_only_their_fiber
    skip "each hook call makes sockets non-blocking" if windows?
    seen = child_says(<<~'RUBY')
      require "socket"
      require "io/nonblock"
      GIVEN = {
        "before the first scheduler" => nil,
        "later" => ->(socket) { socket.class.for_fd(socket.fileno).tap { |given| given.autoclose = false } },
        "by recv_io" => ->(socket) { UNIXSocket.pair.then { |from, to| from.send_io(socket); to.recv_io(socket.class) } }
      }
      FULL = ->(socket) { socket.write_nonblock("x" * 65_536, exception: false).then { |count| FULL.call(socket) if Integer === count } }
      EMPTY = ->(socket) { socket.read_nonblock(65_536, exception: false).then { |bytes| EMPTY.call(socket) if String === bytes } }
      LISTENER = -> { TCPServer.new("127.0.0.1", 0).then { |server| [server, server.local_address] } }
      CONNECT = ->(address) { Socket.new(:INET, :STREAM).connect(address) }
      PAIR = -> { UNIXSocket.pair }
      FULL_PAIR = -> { PAIR.call.tap { |socket, _| FULL.call(socket) } }
      WRITE = ->(peer) { peer.write("x") }
      METHODS = {
        accept: [LISTENER, :accept.to_proc, CONNECT], sysaccept: [LISTENER, :sysaccept.to_proc, CONNECT],
        recv: [PAIR, ->(socket) { socket.recv(1) }, WRITE], recvfrom: [PAIR, ->(socket) { socket.recvfrom(1) }, WRITE],
        recvmsg: [PAIR, :recvmsg.to_proc, WRITE], recv_io: [PAIR, :recv_io.to_proc, ->(peer) { peer.send_io($stdin) }],
        send: [FULL_PAIR, ->(socket) { socket.send("x" * 65_536, 0) }, EMPTY], sendmsg: [FULL_PAIR, ->(socket) { socket.sendmsg("x" * 65_536) }, EMPTY],
        send_io: [FULL_PAIR, ->(socket) { socket.send_io($stdin) }, EMPTY]
      }
      cases = METHODS.flat_map do |name, (make, call, answer)|
        GIVEN.map do |given, transform|
          socket, peer = make.call
          socket.nonblock = false
          [name, given, call, answer, transform, socket, peer]
        end
      end
      closed = UNIXSocket.pair.each(&:close)
      never_opened = UNIXSocket.allocate
      Reactor.run do
        cases.each do |name, given, call, answer, transform, socket, peer|
          socket = transform.call(socket) if transform
          puts "#{name} of a socket given #{given} is in blocking mode" unless socket.nonblock?
          waiting = Fiber.schedule { call.call(socket) }
          answer.call(peer)
          sleep 0 while waiting.alive?
        end
      end
      print cases.size
    RUBY
    assert_equal "27", seen
  end
end

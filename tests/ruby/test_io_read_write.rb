# frozen_string_literal: true

require_relative "helper"

# The hooks io_read and io_write, called directly and by IO methods.
class TestIOReadWrite < ReactorTest
  EAGAIN = -Errno::EWOULDBLOCK::Errno # another number on Windows
  MIB = 1 << 20

  # --- the hooks themselves -------------------------------------------------------------------------------------------

  # The smallest length that makes one attempt: the minimum 0 before Ruby 4.1; from 4.1 on 0 transfers nothing.
  def try_length(buffer) = CONTRACT == 4 ? buffer.size : 0

  def test_one_read_attempt_returns_bytes_zero_or_minus_errno
    r, w = pipe
    in_fiber do |scheduler|
      buffer = buffer_of(16)
      assert_equal EAGAIN, hook_read(scheduler, r, buffer, try_length(buffer))
      w.syswrite("hello")
      assert_equal 5, hook_read(scheduler, r, buffer, try_length(buffer))
      assert_equal "hello", buffer.get_string(0, 5)
      w.close
      assert_equal 0, hook_read(scheduler, r, buffer, try_length(buffer)), "end of file"
    end
  end

  def test_one_write_attempt_returns_bytes_or_minus_errno
    r, w = pipe
    in_fiber do |scheduler|
      buffer = buffer_of("hello")
      assert_equal 5, hook_write(scheduler, w, buffer, try_length(buffer))
      assert_equal "hello", r.readpartial(9)
      fill(w)
      assert_equal EAGAIN, hook_write(scheduler, w, buffer, try_length(buffer))
      r.close
      assert_equal(-Errno::EPIPE::Errno, hook_write(scheduler, w, buffer, try_length(buffer)))
    end
  end

  def test_version_3_read_length_is_a_minimum
    skip "this Ruby has version 4 of the hooks" if CONTRACT == 4
    r, w = pipe
    in_fiber do |scheduler|
      buffer = buffer_of(16)
      Fiber.schedule { %w[ab cd ef].each { |s| w.syswrite(s); sleep 0.003 } }
      got = hook_read(scheduler, r, buffer, 5)
      assert_equal 6, got, "at least five bytes, and all that are available"
      assert_equal "abcdef", buffer.get_string(0, 6)
      w.syswrite("xy")
      w.close
      assert_equal 2, hook_read(scheduler, r, buffer, 5), "fewer bytes at the end of file only"
    end
  end

  def test_version_3_write_length_is_a_minimum
    skip "this Ruby has version 4 of the hooks" if CONTRACT == 4
    skip_under_stress
    a, b = pair
    data = Random.new(3).bytes(MIB)
    got = nil
    in_fiber do |scheduler|
      Fiber.schedule { got = b.read(MIB) }
      assert_equal MIB, hook_write(scheduler, a, buffer_of(data), MIB)
    end
    assert_bytes data, got
  end

  # On other Rubies a subclass gets the hooks with the order of arguments of version 4.
  def test_version_4_length_is_a_maximum_of_one_transfer
    if CONTRACT == 4
      in_fiber { |scheduler| assert_v4(scheduler) }
    else
      klass = Class.new(Reactor::Scheduler)
      Reactor::Scheduler.superclass.define_transfers(klass, 4)
      # Called by the root fiber, where Ruby calls no hooks: Ruby would pass the arguments in its own order.
      run_plain { klass.new.then { |scheduler| assert_v4(scheduler); scheduler.close } }
    end
  end

  def test_transfers_at_an_offset_and_of_nothing
    r, w = pipe
    in_fiber do |scheduler|
      source, target = buffer_of("0123456789"), buffer_of(8)
      assert_equal 4, hook_write(scheduler, w, source, 4, 6)
      assert_equal 4, hook_read(scheduler, r, target, 4, 4)
      assert_equal "6789", target.get_string(4)
      assert_equal 0, hook_write(scheduler, w, source.slice(0, 0), 0)
      [[r, :hook_read], [w, :hook_write]].each { |io, hook| assert_raises(ArgumentError) { send(hook, scheduler, io, target, 1, 9) } }
    end
  end

  # (On Windows the reading end of a pipe can be written to.)
  def test_the_other_direction_of_an_end_is_what_it_is_in_plain_ruby
    assert_as_plain { quietly { IO::Buffer.new(8).write(IO.pipe.first, 8) } }
  end

  def assert_v4(scheduler)
    r, w = pipe
    buffer = buffer_of(16)
    assert_equal EAGAIN, scheduler.io_read(r, buffer, 0, 8)
    w.syswrite("abcdef")
    assert_equal 0, scheduler.io_read(r, buffer, 0, 0)
    assert_equal 4, scheduler.io_read(r, buffer, 2, 4)
    assert_equal 2, scheduler.io_read(r, buffer, 6, 8)
    assert_equal "abcdef", buffer.get_string(2, 6)
    source = buffer_of("0123456789")
    assert_equal 0, scheduler.io_write(w, source, 0, 0)
    assert_equal 3, scheduler.io_write(w, source, 5, 3)
    assert_equal "567", r.readpartial(9)
    fill(w)
    assert_equal EAGAIN, scheduler.io_write(w, source, 0, 10)
  end

  # Methods that wait may park in the hook, and need no system call when there is no data.
  def test_read_nonblock_sees_what_came_after_a_read_that_emptied_the_pipe
    r, w = pipe
    in_fiber do
      2.times do
        Fiber.schedule { sleep 0; w.syswrite("first") }
        assert_equal "first", r.readpartial(9)
        w.syswrite("second")
        assert_equal "second", r.read_nonblock(9, exception: false)
        assert_equal :wait_readable, r.read_nonblock(9, exception: false)
      end
    end
  end

  def test_each_method_of_a_pipe_waits_for_what_comes_later
    skip_under_stress
    calls = { readpartial: [2], sysread: [2], read: [3], gets: [], readline: [], getc: [], getbyte: [], readchar: [], readbyte: [], eof?: [] }
    calls.each do |name, arguments|
      r, w = pipe
      results = []
      in_fiber do |scheduler|
        Fiber.schedule { 2.times { results << r.public_send(name, *arguments) << r.readpartial(9) } }
        2.times do |round|
          until_parked(scheduler, 1)
          w.syswrite("ab\nc")
          sleep 0 until results.size == 2 * round + 2
        end
      end
      reader, writer = pipe
      plain = Array.new(2) { writer.syswrite("ab\nc"); [reader.public_send(name, *arguments), reader.readpartial(9)] }.flatten
      assert_equal plain, results, name
    end
  end

  def test_read_nonblock_on_a_blocking_terminal_never_parks
    pty = optional_pty
    main, terminal = pty.open.each { |io| track(io) }
    require "io/console"
    terminal.raw!
    results = []
    in_fiber do
      results << terminal.read_nonblock(5, exception: false) # would never return if it parked: nothing is written before
      main.write("abc")
      assert terminal.wait_readable(TEST_TIMEOUT)
      results << terminal.read_nonblock(5, exception: false)
    end
    assert_equal [:wait_readable, "abc"], results
  end

  def optional_pty
    require "pty"
    PTY
  rescue LoadError
    skip "no pseudo-terminals on this platform"
  end

  # --- ordinary IO ----------------------------------------------------------------------------------------------------

  def test_one_mebibyte_each_way_over_every_stream
    skip_under_stress
    data = Random.new(7).bytes(MIB)
    back = data.reverse
    [pair, tcp_pair].each do |a, b|
      got = []
      run_scheduler do
        Fiber.schedule { a.write(data); a.flush; got << [:a, a.read(MIB)] }
        Fiber.schedule { b.write(back); b.flush }
        Fiber.schedule { got << [:b, b.read(MIB)] }
      end
      assert_bytes back, got.to_h[:a]
      assert_bytes data, got.to_h[:b]
    end
    r, w = pipe
    got = nil
    run_scheduler do
      Fiber.schedule { got = r.read }
      Fiber.schedule { w.write(data); w.close }
    end
    assert_bytes data, got
  end

  # The operation is tried first, and ends without a wait. On uring a write may be sent with others at the end of the turn.
  def test_an_operation_that_need_not_wait_does_not_park
    server = track(TCPServer.new("127.0.0.1", 0))
    client = track(TCPSocket.new("127.0.0.1", server.addr[1]))
    reading, writing = pair
    piped = pipe
    [writing, piped[1]].each { |io| io << "line\nmore bytes" }
    run_scheduler do |scheduler|
      Fiber.schedule do
        before = scheduler.stats[:parks]
        assert_equal ["line\n", "m", "ore "], [reading.gets, reading.getc, reading.read(4)]
        assert_equal ["line\n", "more bytes"], [piped[0].gets, piped[0].readpartial(99)]
        track(server.accept)
        assert_equal 3, client.send("abc", 0)
        assert_equal 2, client.write("xy") unless BACKEND == :uring
        assert_equal before, scheduler.stats[:parks]
      end
      assert_equal 0, scheduler.live
    end
  end

  def test_two_readers_of_a_blocking_descriptor_each_get_data
    require "io/nonblock"
    r, w = pipe
    r.nonblock = false
    log = []
    run_scheduler do
      2.times { Fiber.schedule { log << r.readpartial(1) } }
      Fiber.schedule { w.syswrite("a"); sleep 0.001 until log.any?; log << :alive; w.syswrite("b") }
    end
    assert_equal ["a", :alive, "b"], log
  end

  def test_lines_to_a_pipe_that_is_full_park_their_fiber
    r, w = pipe
    line = "x" * 1000
    lines = nil
    run_scheduler do
      Fiber.schedule { 200.times { w.puts line }; w.close }
      Fiber.schedule { lines = r.each_line(chomp: true).tally }
    end
    assert_equal({ line => 200 }, lines)
  end

  def test_a_write_of_several_objects_is_that_of_plain_ruby
    r, w = pipe
    odd = Struct.new(:to_s).new("odd")
    parts = [["a", 1, nil, [2, "b"], odd], ["\u4e2d", "\xff".b], ["1".encode("UTF-16LE"), "\u4e2d"], []]
    assert_as_plain { parts.map { |objects| [w.write(*objects), objects.empty? ? "" : r.readpartial(99)] } }
  end

  def test_a_line_and_its_end_are_one_write
    skip "Windows has no datagrams between UNIX sockets" if windows?
    in_fiber do
      ours, theirs = UNIXSocket.pair(:DGRAM)
      ours.puts("a", 2, "c\n")
      assert_equal %W[a\n 2\n c\n], Array.new(3) { theirs.recv(9) }
    ensure
      [ours, theirs].compact.each(&:close)
    end
  end

  def test_puts_writes_what_plain_ruby_writes
    nested = ["x", [1, "y\n"]]
    nested << nested
    lines = [[], ["a"], ["", nil, :b, 1.5], ["c\n", "d\n\n"], [nested], [[]], ["\xFF".b, "\u00e9"], ["e".encode("UTF-16LE")], ["f".encode("UTF-32BE"), "g"]]
    texts = lambda do
      lines.map do |objects|
        r, w = IO.pipe(binmode: true)
        assert_nil w.puts(*objects)
        w.close
        r.read
      ensure
        r&.close
      end
    end
    assert_equal texts.call, in_fiber { texts.call }
    own = Class.new(IO) { def write(*objects) = super(objects.inspect) }
    said = -> { r, w = IO.pipe; out = own.new(w.fileno, "w", autoclose: false); out.sync = true; out.puts("a"); w.close; r.read.tap { r.close } }
    assert_equal said.call, in_fiber { said.call }
  end

  def test_a_dup_of_a_socket_reads_on_after_the_close_of_the_socket
    a, b = pair
    copy = track(a.dup)
    got = nil
    run_scheduler do |scheduler|
      Fiber.schedule { got = copy.readpartial(9) }
      Fiber.schedule { until_parked(scheduler, 1); a.close; b << "later" }
    end
    assert_equal "later", got
  end

  def test_closing_the_reading_end_wakes_the_writer
    skip_under_stress
    r, w = pipe
    log = []
    run_scheduler do |scheduler|
      Fiber.schedule { w.write("x" * MIB) rescue log << $!.class }
      Fiber.schedule { r.readpartial(10); until_parked(scheduler, 1); log << :closing; r.close }
    end
    assert_equal [:closing, Errno::EPIPE], log
  end

  # IO::Buffer passes the object to the scheduler as it was given.
  def test_a_buffer_reads_and_writes_an_object_that_converts_to_an_io
    transfers = lambda do
      file = Tempfile.new("delegate", mode: File::APPEND)
      quietly do
        buffer = IO::Buffer.new(5)
        [IO::Buffer.for("hello") { |text| text.write(file, 5) }, file.rewind, buffer.read(file, 5), buffer.get_string]
      end
    ensure
      file&.close!
    end
    assert_as_plain(&transfers)
  end

  # Without a scheduler, a read with this timeout waits forever.
  def test_an_io_timeout_of_zero_elapses_at_once
    r, = pipe
    r.timeout = 0
    reads = [-> { r.read(1) }, -> { r.readpartial(1) }, -> { r.gets }, -> { r.getc }]
    assert_equal [[:raised, IO::TimeoutError]] * 4, in_fiber { reads.map { |read| outcome(&read) } }
  end
end

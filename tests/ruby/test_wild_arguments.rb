# frozen_string_literal: true

require_relative "helper"
require "io/nonblock"
ReactorTest.optional "pty"

# Arguments that no sensible program passes to Ruby's own methods and to the hooks: the errors are those of plain Ruby.
# Found by bin/check wild.
class TestWildArguments < ReactorTest
  Divisible = Struct.new(:divided) { def divmod(_) = divided }

  CALLS = {
    "Socket.sockaddr_in, port" => ->(odd) { Socket.sockaddr_in(odd, "127.0.0.1") },
    "Socket.getaddrinfo, service" => ->(odd) { Socket.getaddrinfo("127.0.0.1", odd) },
    "Socket.getaddrinfo, family" => ->(odd) { Socket.getaddrinfo("127.0.0.1", 1, odd) },
    "Addrinfo.tcp" => ->(odd) { Addrinfo.tcp("127.0.0.1", odd).class },
    "TCPSocket.new" => ->(odd) { TCPSocket.new("127.0.0.1", odd) },
    "UDPSocket#connect" => ->(odd) { UDPSocket.open { |socket| socket.connect("127.0.0.1", odd) } },
    "UDPSocket#send" => ->(odd) { UDPSocket.open { |socket| socket.send("x", 0, "127.0.0.1", odd) } },
    "Socket.tcp" => ->(odd) { Socket.tcp("127.0.0.1", odd) }
  }.freeze

  # Bytes from the network, for example. They led to errors of Regexp and String: ArgumentError, Encoding::CompatibilityError.
  TEXTS = ["\xff", "\xff".b, "1".encode("UTF-16LE"), "\u3131".encode("UTF-16LE"), "\u4e2d", "1\xff", "1".b].freeze

  def test_services_and_families_of_any_encoding_are_those_of_plain_ruby
    assert_as_plain { CALLS.keys.product(TEXTS).to_h { |name, text| [[name, text], outcome { CALLS.fetch(name).call(text).class }] } }
  end

  def test_a_wait_for_an_io_that_is_not_open_is_an_io_error_whatever_its_duration
    shut = pipe.first.tap(&:close)
    waits = [shut, File.allocate].product([-2**64, Complex(1, 1), Float::NAN, nil, 0])
    assert_as_plain { waits.map { |io, duration| outcome { io.wait(IO::WRITABLE, duration) } } }
  end

  def test_the_exception_of_a_timeout_is_raised_as_ruby_raises_it
    no_exception = ["text", 1, nil, String]
    in_fiber do |scheduler|
      no_exception.each { |odd| assert_raises(TypeError) { scheduler.timeout_after(0, odd, "message") { sleep } } }
      assert_equal "message", assert_raises(IOError) { scheduler.timeout_after(0, IOError, "message") { sleep } }.message
      assert_equal "message", assert_raises(IOError) { scheduler.timeout_after(0, IOError.new("own"), "message") { sleep } }.message
      assert_equal "own", assert_raises(IOError) { scheduler.timeout_after(0, IOError.new("own")) { sleep } }.message
    end
  end

  def test_a_time_interval_of_strange_parts_is_what_plain_ruby_takes_it_for
    parts = [[0, nil], [nil, 0], [1], [], ["0", 0], [0, true], [0, :x], [0.5, 0], [2**64, 0], [-1, 0.5], [0, 0.001], [Float::NAN, 0], 1, nil]
    assert_as_plain { parts.to_h { |divided| [divided.inspect, outcome { sleep(Divisible.new(divided)).class }] } }
  end

  # Copies between these ends while another fiber feeds or drains them. Its order shows that the copy does not hold the thread.
  def check_copy(from, to, feed, drain)
    log = []
    copied = nil
    run_scheduler do |scheduler|
      Fiber.schedule do
        copied = IO.copy_stream(from, to, 4)
        log << :copied
      end
      Fiber.schedule do
        until_parked(scheduler, 1)
        log << :other
        feed&.call
        drain&.call
      end
    end
    assert_equal [4, %i[other copied]], [copied, log]
  end

  def test_a_copy_from_a_pipe_that_blocks_or_a_terminal_stops_no_other_fiber
    r, w = pipe
    r.nonblock = false
    check_copy(r, pipe.last, -> { w.syswrite("text") }, nil)
    master, terminal = PTY.open.each { |io| track(io) }
    check_copy(terminal, pipe.last, -> { master.syswrite("text\n") }, nil)
  end

  def test_a_copy_from_a_file_to_a_full_pipe_that_blocks_stops_no_other_fiber
    r, w = pipe
    nil until w.write_nonblock("x" * 4096, exception: false) == :wait_writable
    w.nonblock = false
    File.open(__FILE__) { |file| check_copy(file, w, nil, -> { r.readpartial(1 << 20) }) }
  end

  def test_a_copy_that_waits_for_a_pipe_that_blocks_can_be_interrupted
    r, = pipe
    to, = pipe.reverse
    r.nonblock = false
    assert_equal [:raised, Timeout::Error], in_fiber { outcome { Timeout.timeout(0.01) { IO.copy_stream(r, to) } } }
  end

  def test_the_host_of_a_lookup_may_be_any_object_with_to_str
    host = Struct.new(:to_str).new("127.0.0.1")
    in_fiber do |scheduler|
      assert_equal ["127.0.0.1"], scheduler.address_resolve(host)
      assert_raises(TypeError) { scheduler.lookup(Object.new, nil, 0, 0, 0, 0) }
    end
  end

  def test_a_limit_whose_to_f_gives_no_float_is_a_type_error
    odd = Struct.new(:to_f)
    in_fiber do |scheduler|
      [nil, "1", 1, Object.new].each { |answer| assert_raises(TypeError) { scheduler.block(nil, odd.new(answer)) } }
      assert_equal false, scheduler.block(nil, odd.new(0.0))
    end
  end

  def test_a_wait_for_more_ios_than_masks_is_a_wait_for_those_with_a_mask
    r, = pipe
    run_scheduler { |scheduler| Fiber.schedule { assert_nil scheduler.wait_any([r, $stdin, 1], [IO::READABLE], 0.001) } }
  end
end

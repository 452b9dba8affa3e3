# frozen_string_literal: true

require_relative "helper"
require "io/nonblock"
require "pty"

# Arguments that no program has a reason to pass, to Ruby's own methods and to the hooks: the errors are those of plain Ruby.
# Found by bin/wild.
class TestWildArguments < ReactorTest
  # Has none of Object's methods.
  class Bare < BasicObject
  end

  # Answers every message by itself.
  class Everything < BasicObject
    def initialize(answer) = @answer = answer
    def method_missing(...) = @answer
    def respond_to_missing?(...) = true
  end

  # Says of itself that it is of every class and has every method.
  class Pretender
    def is_a?(_) = true
    def nil? = true
    def respond_to?(...) = true
  end

  Divisible = Struct.new(:divided) { def divmod(_) = divided }

  OBJECTS = { "BasicObject" => Bare, "one that answers everything" => -> { Everything.new(nil) }, "a pretender" => Pretender }
            .transform_values { |maker| maker.respond_to?(:new) ? maker.method(:new) : maker }.freeze

  # The methods of Ruby's that this library patches or has a hook for.
  CALLS = {
    "sleep" => ->(odd) { sleep(odd) },
    "IO.select, time" => ->(odd) { IO.select([IO.pipe.first], nil, nil, odd) },
    "IO.select, list" => ->(odd) { IO.select(odd, nil, nil, 0) },
    "IO.select, element" => ->(odd) { IO.select([odd], nil, nil, 0) },
    "IO#wait_readable" => ->(odd) { IO.pipe.first.wait_readable(odd) },
    "Queue#pop" => ->(odd) { Thread::Queue.new.pop(timeout: odd) },
    "Thread#join" => ->(odd) { Thread.new { nil }.join(odd).class },
    "Process.wait" => ->(odd) { Process.wait(odd) },
    "File.new" => ->(odd) { File.new(odd) },
    "File.open" => ->(odd) { File.open(odd) { nil } },
    "File#pwrite" => ->(odd) { File.open(File::NULL, "w") { |file| file.pwrite(odd, 0) } },
    "File#pwrite, offset" => ->(odd) { File.open(File::NULL, "w") { |file| file.pwrite("x", odd) } },
    "File#flock" => ->(odd) { File.open(File::NULL, "w") { |file| file.flock(odd) } },
    "IO#reopen" => ->(odd) { IO.pipe.first.reopen(odd) },
    "IO.copy_stream, source" => ->(odd) { File.open(File::NULL, "w") { |file| IO.copy_stream(odd, file) } },
    "IO.copy_stream, target" => ->(odd) { File.open(__FILE__) { |file| IO.copy_stream(file, odd) } },
    "IO.copy_stream, length" => ->(odd) { File.open(__FILE__) { |file| IO.copy_stream(file, IO.pipe.last, odd) } },
    "IO.copy_stream, offset" => ->(odd) { File.open(__FILE__) { |file| IO.copy_stream(file, IO.pipe.last, 1, odd) } },
    "Socket.sockaddr_in, host" => ->(odd) { Socket.sockaddr_in(1, odd) },
    "Socket.sockaddr_in, port" => ->(odd) { Socket.sockaddr_in(odd, "127.0.0.1") },
    "Socket.getaddrinfo, host" => ->(odd) { Socket.getaddrinfo(odd, 1) },
    "Socket.getaddrinfo, service" => ->(odd) { Socket.getaddrinfo("127.0.0.1", odd) },
    "Socket.getaddrinfo, family" => ->(odd) { Socket.getaddrinfo("127.0.0.1", 1, odd) },
    "Socket.getaddrinfo, reverse" => ->(odd) { Socket.getaddrinfo("127.0.0.1", 1, nil, :STREAM, nil, nil, odd).class },
    "Socket.getnameinfo" => ->(odd) { Socket.getnameinfo(["AF_INET", 1, "127.0.0.1"], odd) },
    "Addrinfo.getaddrinfo" => ->(odd) { Addrinfo.getaddrinfo(odd, 1) },
    "Addrinfo.tcp" => ->(odd) { Addrinfo.tcp("127.0.0.1", odd).class },
    "Addrinfo.ip" => ->(odd) { Addrinfo.ip(odd) },
    "Addrinfo#getnameinfo" => ->(odd) { Addrinfo.tcp("127.0.0.1", 1).getnameinfo(odd) },
    "IPSocket.getaddress" => ->(odd) { IPSocket.getaddress(odd) },
    "IPSocket#addr" => ->(odd) { TCPServer.open("127.0.0.1", 0) { |server| server.addr(odd).class } },
    "TCPSocket.new" => ->(odd) { TCPSocket.new("127.0.0.1", odd) },
    "TCPServer.new" => ->(odd) { TCPServer.new("127.0.0.1", odd) },
    "UDPSocket#connect" => ->(odd) { UDPSocket.open { |socket| socket.connect("127.0.0.1", odd) } },
    "UDPSocket#send" => ->(odd) { UDPSocket.open { |socket| socket.send("x", 0, "127.0.0.1", odd) } },
    "Socket.tcp" => ->(odd) { Socket.tcp("127.0.0.1", odd) }
  }.freeze

  def test_objects_that_are_no_objects_raise_the_errors_of_plain_ruby
    assert_as_plain do
      CALLS.keys.product(OBJECTS.keys).to_h { |name, object| [[name, object], outcome { CALLS.fetch(name).call(OBJECTS.fetch(object).call) }] }
    end
  end

  # Bytes from the network, say. They led to errors of Regexp and String: ArgumentError, Encoding::CompatibilityError.
  TEXTS = ["\xff", "\xff".b, "1".encode("UTF-16LE"), "\u3131".encode("UTF-16LE"), "\u4e2d", "1\xff", "1".b].freeze

  def test_services_and_families_of_any_encoding_are_those_of_plain_ruby
    names = ["Socket.sockaddr_in, port", "Socket.getaddrinfo, service", "Socket.getaddrinfo, family", "Addrinfo.tcp", "TCPSocket.new",
             "UDPSocket#connect", "UDPSocket#send", "Socket.tcp"]
    assert_as_plain { names.product(TEXTS).to_h { |name, text| [[name, text], outcome { CALLS.fetch(name).call(text).class }] } }
  end

  # On select the duration was looked at first.
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
      assert_raises(TypeError) { scheduler.lookup(Object.new, nil, 0, 0, 0, 0) } unless select_backend?
    end
  end

  def test_a_limit_whose_to_f_gives_no_float_is_a_type_error
    odd = Struct.new(:to_f)
    in_fiber do |scheduler|
      [nil, "1", 1, Object.new, BasicObject.new].each { |answer| assert_raises(TypeError) { scheduler.block(nil, odd.new(answer)) } }
      assert_equal false, scheduler.block(nil, odd.new(0.0))
    end
  end

  def test_a_wait_for_more_ios_than_masks_is_a_wait_for_those_with_a_mask
    r, = pipe
    run_scheduler { |scheduler| Fiber.schedule { assert_equal false, scheduler.wait_any([r, $stdin, 1], [IO::READABLE], 0.001) } }
  end
end

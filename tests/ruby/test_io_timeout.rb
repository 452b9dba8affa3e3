# frozen_string_literal: true

require_relative "helper"
require "io/wait"

# What each method raises or returns when its IO's timeout elapses: the same in a fiber as in plain Ruby.
class TestIOTimeout < ReactorTest
  LIMIT = 0.02

  STREAM = -> { UNIXSocket.pair }
  SOURCES = {
    pipe: -> { IO.pipe }, full_pipe: -> { IO.pipe.reverse }, stream: STREAM,
    datagram: -> { Array.new(2) { UDPSocket.new.tap { |socket| socket.bind("127.0.0.1", 0) } } },
    server: -> { [TCPServer.new("127.0.0.1", 0)] }, socket: -> { [Socket.tcp_server_sockets("127.0.0.1", 0).first] }
  }.freeze

  BIG = ("x" * 4_000_000).freeze

  # Not readpartial and sysread: without a scheduler, Ruby 3.3 does not end them at all.
  CALLS = {
    stream: { recv: ->(io) { io.recv(4) }, recvfrom: ->(io) { io.recvfrom(4) }, recvmsg: ->(io) { io.recvmsg },
              recv_nonblock: ->(io) { io.recv_nonblock(4) }, read: ->(io) { io.read(4) }, read_all: ->(io) { io.read },
              gets: ->(io) { io.gets }, getc: ->(io) { io.getc }, eof: ->(io) { io.eof? }, wait_readable: ->(io) { io.wait_readable },
              wait: ->(io) { io.wait }, io_wait: ->(io) { io.wait(IO::READABLE, LIMIT) }, read_nonblock: ->(io) { io.read_nonblock(4) },
              write: ->(io) { io.write(BIG) }, syswrite: ->(io) { loop { io.syswrite(BIG) } }, puts: ->(io) { io.puts(BIG) },
              send: ->(io) { loop { io.send(BIG[0, 1000], 0) } }, sendmsg: ->(io) { loop { io.sendmsg(BIG[0, 1000]) } } },
    pipe: { read: ->(io) { io.read(4) }, gets: ->(io) { io.gets }, each_line: ->(io) { io.each_line { nil } },
            each_codepoint: ->(io) { io.each_codepoint { nil } }, wait_readable: ->(io) { io.wait_readable },
            select: ->(io) { IO.select([io], nil, nil, LIMIT) }, read_nonblock: ->(io) { io.read_nonblock(4) } },
    full_pipe: { write: ->(io) { io.write(BIG) }, print: ->(io) { io.print(BIG) }, syswrite: ->(io) { loop { io.syswrite(BIG) } } },
    datagram: { recv: ->(io) { io.recv(4) }, recvfrom: ->(io) { io.recvfrom(4) }, recvmsg: ->(io) { io.recvmsg } },
    server: { accept: ->(io) { io.accept }, sysaccept: ->(io) { io.sysaccept }, wait_readable: ->(io) { io.wait_readable } },
    socket: { accept: ->(io) { io.accept }, sysaccept: ->(io) { io.sysaccept } }
  }.freeze

  def test_an_io_timeout_raises_what_plain_ruby_raises_even_if_other_fibers_have_changed_errno
    expected = run_plain { answers }
    got = run_scheduler do
      all = nil
      Fiber.schedule { all = answers }
      Fiber.schedule { (File.exist?("/nonexistent/file"); sleep LIMIT / 4) until all }
      Fiber.scheduler.run
      all
    end
    assert_equal expected, got
    assert_equal [false], expected.values.map { |answer| answer.start_with?("Timeout::Error") }.uniq, "each ends by itself"
  end

  private

  # @return [Hash{String => String}] what each call has returned or raised
  def answers
    CALLS.flat_map { |source, calls| calls.map { |name, call| ["#{source}.#{name}", answer(SOURCES.fetch(source).call, call)] } }.to_h
  end

  def answer(ios, call)
    ios.first.timeout = LIMIT
    Timeout.timeout(TEST_TIMEOUT) { call.call(ios.first).inspect }
  rescue IO::TimeoutError => error
    error.class.name # its message is another one with a scheduler
  rescue StandardError => error
    "#{error.class}: #{error.message}"
  ensure
    ios.each { |io| io.close rescue nil } # rubocop:disable Style/RescueModifier -- what is buffered cannot be written
  end
end

# frozen_string_literal: true

require_relative "helper"

# Shutting down the reading half of a socket ends the waits of its readers, on every system.
class TestHalfClose < ReactorTest
  ENDS = [:close_read.to_proc, ->(socket) { socket.shutdown(:RD) }, :shutdown.to_proc].freeze
  READS = {
    ->(socket) { socket.read(1) } => nil, ->(socket) { socket.gets } => nil, ->(socket) { socket.recv(1) } => nil,
    ->(socket) { socket.readpartial(1) } => EOFError, ->(socket) { socket.wait_readable.class } => TCPSocket
  }.freeze

  def answers(by)
    cases = ENDS.product(READS.to_a)
    found = Array.new(cases.size)
    run_scheduler do |scheduler|
      sockets = cases.each_with_index.map do |(_, (read, _)), place|
        tcp_pair.first.tap { |socket| Fiber.schedule { found[place] = read.call(socket) rescue found[place] = $!.class } }
      end
      Fiber.schedule do
        until_parked(scheduler, cases.size)
        by.call { cases.zip(sockets) { |(finish, _), socket| finish.call(socket) } }
      end
    end
    [cases.map { |_, (_, expected)| expected }, found]
  end

  def test_the_end_of_reading_by_a_fiber_is_the_end_of_the_stream_for_the_readers_that_wait
    assert_equal(*answers(->(&ends) { ends.call }))
  end

  def test_the_end_of_reading_by_another_thread_is_the_end_of_the_stream_for_the_readers_that_wait
    assert_equal(*answers(->(&ends) { Thread.new(&ends).join }))
  end

  def test_the_end_of_reading_wakes_no_writer
    socket, peer = tcp_pair
    log = []
    run_scheduler do |scheduler|
      fill(socket)
      Fiber.schedule { log << socket.wait_writable.class }
      Fiber.schedule { log << socket.read }
      Fiber.schedule do
        until_parked(scheduler, 2)
        socket.close_read
        5.times { scheduler.yield }
        log << :peer
        peer.readpartial(65_536) while log.size < 3
      end
    end
    assert_equal ["", :peer, TCPSocket], log
  end
end

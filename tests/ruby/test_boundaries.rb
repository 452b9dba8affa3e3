# frozen_string_literal: true

require_relative "helper"
require "fcntl"
require "io/nonblock"

# A short count does not always mean that there is no more data: the kernel ends a read at a boundary between messages, without
# recv(2) telling. For Unix sockets recvmsg(2) tells, where descriptors are passed. At TCP's urgent data the
# registry finds the data behind the boundary when it first re-arms the wait. From then on it ignores short counts of this socket,
# so no later wait needs to be re-armed. Expected values come from threads.
class TestBoundaries < ReactorTest
  COUNT = 10

  # What readpartial returns, until this many bytes have arrived.
  def read_all(io, bytes)
    found = []
    found << io.readpartial(100) until found.sum(&:bytesize) >= bytes
    found
  end

  # Sends while a fiber waits for the first message, and then lets it read. At most `looks` waits may need a re-arm.
  def check(make, bytes, looks: 0)
    plain = run_plain do
      io, writing = make.call
      yield writing
      read_all(io, bytes)
    end
    found, looked = nil
    run_scheduler do |scheduler|
      io, writing = make.call
      sent = Thread::Queue.new
      Fiber.schedule do
        found = [io.readpartial(100)] # waits, and so is registered
        sent.pop # on io_uring, the writer may wait as well
        looked = scheduler.stats[:rearmed]
        found += read_all(io, bytes - found.first.bytesize)
        looked = scheduler.stats[:rearmed] - looked
      end
      Fiber.schedule { yield writing; sent.close }
    end
    assert_equal plain, found
    assert_operator looked, :<=, looks
  end

  def test_messages_with_and_without_descriptors_need_no_look
    rights = Socket::AncillaryData.unix_rights($stderr)
    check(-> { pair }, 4 * COUNT) do |writing|
      COUNT.times { |i| writing.sendmsg(format("%02d", i), 0, nil, rights); writing << "ab" }
    end
  end

  def test_messages_of_several_senders_need_no_look
    needs_linux "SO_PASSCRED"
    make = -> { pair.tap { |io, _| io.setsockopt(:SOCKET, :PASSCRED, true) } }
    check(make, 8) do |writing|
      4.times { writing << "a"; Fiber.blocking { system("printf b >&3", 3 => writing) } }
    end
  end

  # What a program makes of a descriptor it has inherited or received.
  def test_messages_with_descriptors_need_no_look_whatever_object_is_made_of_the_socket
    rights = Socket::AncillaryData.unix_rights($stderr)
    objects = [
      ->(socket) { UNIXSocket.for_fd(socket.fileno) },
      ->(socket) { Socket.for_fd(socket.fileno) },
      ->(socket) { IO.for_fd(socket.fileno, "r+") },
      ->(socket) { UNIXSocket.for_fd(socket.tap { |io| io.nonblock = false }.fileno) }
    ]
    objects.each do |object|
      make = lambda do
        socket, writing = pair
        [object.call(socket).tap { |io| io.autoclose = false }, writing]
      end
      check(make, 2 * COUNT) { |writing| COUNT.times { |i| writing.sendmsg(format("%02d", i), 0, nil, rights) } }
    end
  end

  def send_around_urgent_data(socket)
    [["head", 0], ["!", Socket::MSG_OOB], ["tail", 0]].each { |bytes, flags| socket.send(bytes, flags) }
  end

  def test_urgent_data_needs_one_look
    check(-> { tcp_pair }, 8, looks: 1) { |writing| send_around_urgent_data(writing) }
  end

  # What a re-arm has found counts for later waits, even for those of a new object for the file. In each round a fiber waits for
  # two pieces. (On a busy machine a wait may be long enough to be re-armed itself.)
  def test_what_a_look_has_found_counts_for_waits_of_new_objects
    looked, objects = nil, []
    run_scheduler do |scheduler|
      socket, writing = tcp_pair
      got = 0
      Fiber.schedule do
        COUNT.times do
          io = TCPSocket.for_fd(socket.fileno)
          io.autoclose = false
          objects << io
          2.times { io.readpartial(9); got += 1 }
        end
      end
      Fiber.schedule do
        before = nil
        COUNT.times do |i|
          until_parked(scheduler, 1)
          before ||= scheduler.stats[:rearmed]
          send_around_urgent_data(writing)
          assert eventually { got == 2 * i + 2 }
        end
        looked = scheduler.stats[:rearmed] - before
      end
    end
    assert_operator looked - (objects.size - 1), :<, COUNT, "for each object but the first the socket is armed anew"
  end

  def test_datagrams_and_packets_need_no_look
    kinds = %i[DGRAM SEQPACKET].map { |type| -> { UNIXSocket.pair(type).each { |io| track(io) } } }
    kinds << -> { pipe.tap { |_, writing| writing.fcntl(Fcntl::F_SETFL, File::WRONLY | File::NONBLOCK | File::DIRECT) } } if linux?
    kinds.each { |make| check(make, 2 * COUNT) { |writing| COUNT.times { |i| writing << format("%02d", i) } } }
  end

  # The rule still holds for TCP: the next wait needs no system call.
  def test_a_short_read_of_tcp_means_drained
    skipped = nil
    run_scheduler do |scheduler|
      io, writing = tcp_pair
      got = 0
      Fiber.schedule { (COUNT + 1).times { io.readpartial(9); got += 1 } }
      Fiber.schedule do
        until_parked(scheduler, 1)
        before = scheduler.stats[:skipped]
        COUNT.times do |i|
          writing << "x"
          sleep 0 until got > i
          until_parked(scheduler, 1) # also if its time slice was spent in between
        end
        skipped = scheduler.stats[:skipped] - before
        writing << "x"
      end
    end
    assert_equal COUNT, skipped
  end
end

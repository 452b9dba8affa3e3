# frozen_string_literal: true

require "socket"

# Cells of test_closes.rb: an IO is closed in some way by some closer, while a reader is in some wait for it, in some state. A name is
# "reader|wait|state|way|closer". A cell tells what the readers got, what the closer got, and whether the IO is closed.
module Closes
  KEPT = []

  class << self
    def pair = UNIXSocket.pair.then { |io, peer| KEPT << peer && [io, -> { peer.write("abc\n") }] }

    def pipe = IO.pipe.then { |io, peer| KEPT << peer && [io, -> { peer.write("abc\n") }] }

    def full_pipe
      peer, io = IO.pipe
      KEPT << peer
      nil while io.write_nonblock("x" * 65_536, exception: false) != :wait_writable
      [io, -> { peer.readpartial(65_536) }]
    end

    def listener
      server = TCPServer.new("127.0.0.1", 0)
      address = Socket.sockaddr_in(server.addr[1], "127.0.0.1")
      [server, -> { KEPT << Socket.new(:INET, :STREAM).tap { |client| client.connect_nonblock(address, exception: false) } }]
    end
  end

  # What is waited for, how, and the value if it comes.
  WAITS = {
    "recv" => [:pair, ->(io) { io.recv(9) }, "abc\n"],
    "read" => [:pair, ->(io) { io.read(4) }, "abc\n"],
    "readpartial" => [:pipe, ->(io) { io.readpartial(9) }, "abc\n"],
    "gets" => [:pair, ->(io) { io.gets }, "abc\n"],
    "accept" => [:listener, ->(io) { io.accept.class }, "TCPSocket"],
    "write" => [:full_pipe, ->(io) { io.syswrite("x") }, "1"],
    "wait_readable" => [:pair, ->(io) { io.wait_readable.class }, "UNIXSocket"],
    "select" => [:pair, ->(io) { IO.select([io]).first.size }, "1"],
    "Enumerator" => [:pipe, ->(io) { Enumerator.new { |y| y << io.readpartial(9) }.next }, "abc\n"]
  }.freeze

  # What has happened when the IO is closed. "arrived": it has become ready. "queued": the loop knows, and has queued the reader.
  STATES = %w[parked arrived queued].freeze

  WAYS = {
    "close" => ->(io) { io.close },
    "close_read" => ->(io) { io.close_read },
    "close_write" => ->(io) { io.close_write },
    "reopen" => ->(io) { io.reopen(io.is_a?(BasicSocket) ? UNIXSocket.pair.first : File.open(File::NULL, "r+")) }
  }.freeze

  # Who waits for the IO. Each is given a lambda that waits, and yields to the closer.
  READERS = {
    "a fiber" => ->(read, &close) { scheduled { Fiber.schedule(&read); close.call } },
    "two fibers" => ->(read, &close) { scheduled { 2.times { Fiber.schedule(&read) }; close.call } },
    "a thread" => ->(read, &close) { beside(-> { read.call }) { scheduled(&close) } },
    "a root fiber" => ->(read, &close) { beside(-> { scheduled(&read) }) { scheduled(&close) } },
    "a blocking fiber" => ->(read, &close) { beside(-> { scheduled { Fiber.schedule { Fiber.blocking { read.call } } } }) { scheduled(&close) } },
    "plain" => ->(read, &close) { beside(read, &close) }
  }.freeze

  # Who closes it. Each is given a lambda that does so; a thread does so by a lambda that this one yields.
  CLOSERS = {
    "plain" => ->(act) { act.call(:call) },
    "the root fiber" => ->(act) { act.call(:call) },
    "a fiber" => ->(act) { Fiber.schedule { act.call(:call) } },
    "a blocking fiber" => ->(act) { Fiber.schedule { Fiber.blocking { act.call(:call) } } },
    "an Enumerator" => ->(act) { Enumerator.new { |y| y << act.call(:call) }.next },
    "a thread" => ->(act) { Fiber.schedule { act.call(->(close) { Thread.new(&close).join }) } },
    "a fiber of a thread" => ->(act) { Fiber.schedule { act.call(->(close) { Thread.new { scheduled { Fiber.schedule(&close) } }.join }) } },
    "a root fiber of a thread" => ->(act) { Fiber.schedule { act.call(->(close) { Thread.new { scheduled(&close) }.join }) } },
    "a handler" => ->(act) { handled(act) },
    "a handler of a fiber" => ->(act) { Fiber.schedule { handled(act) } }
  }.freeze

  class << self
    # Runs the block in the root fiber of a scheduler, and then the scheduler's fibers.
    def scheduled
      Fiber.set_scheduler(Reactor::Scheduler.new)
      yield
      Fiber.set_scheduler(nil)
    end

    # Runs the block while another thread waits.
    def beside(read)
      thread = Thread.new(&read)
      Thread.pass until thread.stop?
      yield
      thread.join
    end

    def handled(act)
      trap(:USR1) { act.call(:call) }
      Process.kill(:USR1, Process.pid)
      sleep 0.001 # checks for signals
    end

    def told
      yield.to_s
    rescue StandardError => error
      "#{error.class}: #{error.message}"
    end

    def cell(name)
      reader, wait, state, way, closer = name.split("|")
      make, wait = WAITS.fetch(wait)
      io, feed = send(make)
      got, closed = [], []
      act = lambda do |call|
        feed.call unless state == "parked"
        Fiber.scheduler.yield until state != "queued" || Fiber.scheduler.stats[:ready].positive? || got.any?
        call.to_proc.call(-> { closed << told { WAYS.fetch(way).call(io) && nil } })
      end
      READERS.fetch(reader).call(-> { got << told { wait.call(io) } }) { CLOSERS.fetch(closer).call(act) }
      [got, closed, io.closed?]
    end
  end
end

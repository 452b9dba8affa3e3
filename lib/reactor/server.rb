# frozen_string_literal: true

require "timeout"

module Reactor
  # Serves a listening socket. A connection has a fiber from the first byte of a request to the end of the answer. The fiber lingers
  # for a moment, so that a busy connection needs no new fiber for its next request. Then the connection rests without a fiber
  # ({Watching#on_ready}).
  #
  #   server = Reactor::Server.new(TCPServer.new(8080), limit: 10_000, idle_timeout: 60) do |socket|
  #     line = socket.gets
  #     socket.write("you said #{line}") if line # nil or false: the connection is closed
  #   end
  #   server.start
  #   stop = Thread::Queue.new
  #   trap("TERM") { stop << true }
  #   Fiber.schedule { stop.pop; server.stop(10) }
  #
  # The block is called when bytes have come. It reads one request, answers it, and returns whether the connection is kept. If the request
  # is not complete yet, the read waits; the block sets its own time limit for that (`Timeout.timeout`, `IO#timeout=`).
  #
  # Each call of the block begins with a copy of the fiber storage that {#start} was called with, whatever the block has written into it
  # for an earlier request.
  #
  # In protocols in which the server speaks first (SMTP, for example), `speaks: :first` calls the block as soon as a connection is accepted.
  #
  # With TLS, the handshake takes place in the fiber, when the client's first bytes have come:
  #
  #   handshake = lambda do |socket|
  #     OpenSSL::SSL::SSLSocket.new(socket, context).tap { |tls| tls.sync_close = true; tls.accept }
  #   end
  #   Reactor::Server.new(TCPServer.new(8443), handshake: handshake) { |tls| … }
  #
  # If the block raises because the client is gone or too slow (an error of {CLIENT_GONE}, `IO::TimeoutError`,
  # `OpenSSL::SSL::SSLError`, or an IOError of a connection that is closed), the connection is closed, and nothing is reported. Another
  # error closes the connection and is an error of the fiber: it goes to the scheduler's `on_error`, or is reported, and {Lifecycle#run}
  # raises it at its end. So does an error of accept(2) that its manual page does not name. If there is no memory for a fiber,
  # that is such an error, and the connection that needed it is closed. The server goes on in each case: where no connection can be
  # accepted, it tries again after a pause.
  #
  # If the scheduler cancels its fibers (exit, Interrupt, Thread#kill), the listener and all connections are closed.
  class Server
    # Connections that are accepted in one turn.
    ACCEPTS_PER_TURN = 64

    # Seconds without accepting after an error that may come again at once.
    PAUSE = 0.1

    # What reads and writes report if the client has ended the connection.
    CLIENT_GONE = [EOFError, Errno::EPIPE, Errno::ECONNRESET, Errno::ECONNABORTED, Errno::ENOTCONN, Errno::ETIMEDOUT].freeze

    # Errors of accept(2) that concern one connection.
    ABORTED = [Errno::ECONNABORTED, Errno::EPROTO, Errno::EINTR].freeze
    # Errors of accept(2) that concern the process, the machine or the network, and pass.
    PASSING = [
      Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM, Errno::EPERM, Errno::ENETDOWN, Errno::ENOPROTOOPT, Errno::EHOSTDOWN,
      Errno::ENONET, Errno::EHOSTUNREACH, Errno::EOPNOTSUPP, Errno::ENETUNREACH
    ].freeze
    # How a wait for connections ends if another one is to follow. If the scheduler cancels it, the scheduler ends.
    RENEWED = %i[ready timeout failed].freeze
    HandshakeTimeout = Class.new(Timeout::Error)
    private_constant :ACCEPTS_PER_TURN, :PAUSE, :ABORTED, :PASSING, :RENEWED, :HandshakeTimeout

    # @return [Integer] connections that are open
    attr_reader :connections

    # @param listener [TCPServer, UNIXServer, Socket] listens already
    # @param scheduler [Lifecycle] the current thread's
    # @param limit [Integer, nil] connections at most; more wait in the listener's queue
    # @param idle_timeout [Numeric, nil] seconds after which a connection at rest is closed
    # @param grace [Numeric] seconds for which {#stop} leaves connections at rest open: a request that comes then is answered
    # @param linger [Numeric] seconds for which the fiber waits for the next request; 0: it does not
    # @param handshake [#call, nil] gets each new socket when its first bytes have come, and returns the connection
    # @param handshake_timeout [Numeric, nil] seconds after which a handshake is given up and its connection closed; nil: no limit
    # @param speaks [Symbol, nil] :first: the block is called before bytes have come
    # @param on_open [#call, nil] gets each socket when it is accepted
    # @param on_close [#call, nil] gets each connection when it has been closed. An error of these two is reported, and has no other effect.
    # @yieldparam connection [IO, #to_io]
    # @yieldreturn [Boolean, :detached] whether the connection is kept; :detached: it is the program's from now on, and stays open
    # @raise [ArgumentError] without a block, without a scheduler of this library, with a limit below 1 or a negative duration
    # @raise [TypeError] no listener; limit is no Integer; idle_timeout, linger or handshake_timeout is no duration; a callback cannot be called
    def initialize(listener, scheduler: Fiber.scheduler, limit: nil, idle_timeout: nil, linger: 0.5, grace: 0, handshake: nil, handshake_timeout: 10,
                   speaks: nil, on_open: nil, on_close: nil, &block)
      raise ArgumentError, "no block given" unless block
      raise TypeError, "listener is a listening socket, not #{listener.class}" unless listener.respond_to?(:accept_nonblock)
      raise ArgumentError, "no scheduler of this library: call this in the block of Reactor.run" unless scheduler.is_a?(Schedulers::Member)
      raise TypeError, "limit is an Integer, not #{limit.class}" unless limit.nil? || Integer === limit
      raise ArgumentError, "limit must be at least 1, not #{limit}" if limit && limit < 1
      raise TypeError, "linger is a number of seconds; 0: fibers do not linger" if linger.nil?
      raise ArgumentError, "speaks is :first or nil, not #{speaks.inspect}" unless [:first, nil].include?(speaks)

      { handshake: handshake, on_open: on_open, on_close: on_close }.each do |name, callback|
        raise TypeError, "#{name} cannot be called" unless callback.nil? || callback.respond_to?(:call)
      end

      @listener = listener
      @scheduler = scheduler
      @thread = Thread.current
      @limit = limit
      @idle_timeout = Options.seconds(:idle_timeout, idle_timeout)
      @linger = Options.seconds(:linger, linger)
      @grace = Options.seconds(:grace, grace)
      @handshake = handshake
      @handshake_timeout = Options.seconds(:handshake_timeout, handshake_timeout)
      @first_events = speaks ? IO::WRITABLE : IO::READABLE # a new socket is writable
      @on_open, @on_close = on_open, on_close
      @answer = block
      @connections = 0
      @busy = {}.compare_by_identity # socket => the fiber that has it
      @lingering = {}.compare_by_identity # those of these fibers that have no request
      # One Proc for all connections. (Those of Method#to_proc would leave a frame of C on the stack of each fiber.)
      @accept = ->(_events, socket) { accept(socket) }
      @first_bytes = ->(events, socket) { events ? serve(socket, @handshake) : drop(socket) }
      @bytes = ->(events, connection) { events ? serve(connection, nil) : drop(connection) }
      @ended = Thread::Queue.new # closed when a server that stops has no connection left
      @cut = 0
      @accepting = @stopping = nil
    end

    # @return [Boolean] whether {#stop} was called
    def stopping? = !@stopping.nil?

    # Begins to accept, and returns at once.
    #
    # @return [self]
    # @raise [RuntimeError] it was stopped
    def start
      raise "this server was stopped" if @stopping

      @storage = Fiber.current.storage
      @scheduler.add_server(self)
      accept_more
      self
    end

    # Ends the server. Call it in a fiber, which may wait for a trap handler's signal: see above. It accepts the connections that wait in
    # the listener's queue, even beyond the limit, and no more; without a free descriptor it tries again until there is one. It closes those
    # at rest, unless a request has come, and waits until the fibers have answered what has come, and no longer linger.
    #
    # When the timeout is over, the connections are closed, and the fibers are ended where they wait: their ensure clauses run, and no
    # rescue. `stop` does not wait for them. A second call, with a shorter timeout, hastens the first.
    #
    # @param timeout [Numeric, nil] seconds; nil: no limit
    # @raise [ArgumentError, TypeError] the timeout is no duration; nothing is done then
    # @raise [ThreadError] called by another thread than the scheduler's, or by a trap handler; nothing is done then
    # @return [Integer] connections that were closed before the end of their answers, or before a request that had come was read
    def stop(timeout = nil)
      timeout = Options.seconds(:timeout, timeout)
      raise ThreadError, "this server belongs to another thread" unless Thread.current.equal?(@thread)

      Thread::Mutex.new.synchronize { nil } # raises ThreadError in a trap handler, in which a server cannot wait for its fibers
      deadline = timeout && (Clock.now + timeout)
      stop_accepting(deadline) unless @stopping
      @ended.pop(timeout: deadline && [deadline - Clock.now, 0].max) unless ended?
      cut
      @scheduler.forget_server(self)
      @cut
    end

    # Closes the listener and the connections at rest, because the scheduler ends the watchers and the fibers. It does not wait, so with
    # TLS the client gets no close_notify.
    #
    # @api private
    def abandon
      @stopping = true
      @listener.close
      close_resting(&:to_io)
    end

    # There was no memory for the fiber of a watcher.
    #
    # @param block [Proc] the watcher's
    # @param io [#to_io] what was watched
    # @api private
    def recover(block, io)
      if block.equal?(@accept)
        accept_more(PAUSE)
      elsif block.equal?(@first_bytes) || block.equal?(@bytes)
        drop(io.to_io)
      end
    end

    # @return [String] how many connections are open
    def inspect = "#<#{self.class} #{@connections} connections#{", stopped" if @stopping}>"

    private

    def full? = !@limit.nil? && @connections >= @limit

    # @param pause [Numeric, nil] seconds until the next attempt; nil: it is made when a connection comes. (A listener has no priority
    #   events.)
    def accept_more(pause = nil)
      return if @stopping || full? || @listener.closed? || !(@accepting.nil? || RENEWED.include?(@accepting.ended))

      @accepting = @scheduler.on_ready(@listener, pause ? IO::PRIORITY : IO::READABLE, timeout: pause, &@accept)
    end

    # Accepts the waiting connections, but at most those of one turn.
    def accept(listener)
      ACCEPTS_PER_TURN.times { break if @stopping || full? || !accept_one(listener) }
      accept_more
    rescue StandardError => error
      accept_more(PAUSE)
      raise unless PASSING.include?(error.class)
    end

    # @return [Boolean] whether another connection may wait
    def accept_one(listener)
      socket, = listener.accept_nonblock(exception: false)
      return false if socket == :wait_readable

      @connections += 1
      notify(@on_open, socket)
      watched = @scheduler.on_ready(socket, @first_events, timeout: @idle_timeout, &@first_bytes)
      true
    rescue *ABORTED
      true
    ensure
      drop(socket) if IO === socket && !watched
    end

    def stop_accepting(deadline)
      @stopping = true
      @accepting&.cancel
      unless accept_queue
        close_idle # their descriptors may be needed
        sleep PAUSE until accept_queue || (deadline && Clock.now >= deadline)
      end
      @listener.close
      wait_for_last_requests(deadline)
      close_idle
      @connections = @busy.size + resting.size # the program may have closed others
      @ended.close if ended?
    end

    # Those of connections that rest, or come to rest meanwhile.
    def wait_for_last_requests(deadline)
      seconds = [@grace, deadline && (deadline - Clock.now)].compact.min
      return unless seconds.positive? && @connections.positive?

      @in_grace = true
      @ended.pop(timeout: seconds)
    ensure
      @in_grace = false
    end

    # @return [Boolean] whether a connection is closed after its answer
    def closing? = @stopping && !@in_grace

    def ended? = @stopping && @listener.closed? && !@connections.positive?

    # Closes the connections at rest, unless a request has come.
    def close_idle = close_resting { |connection| connection unless request?(connection) }

    # Accepts what the listener's queue holds: closing it would reset those connections.
    #
    # @return [Boolean] false if descriptors or memory are exhausted
    def accept_queue
      Socket::SOMAXCONN.times { break unless accept_one(@listener) }
      true
    rescue *PASSING
      false
    rescue SystemCallError, IOError
      true # they will be reset
    end

    # Ends the fibers that still answer, and closes their connections and those that wait for a fiber or to be accepted.
    def cut
      @listener.close
      @cut += close_resting(&:to_io) + @busy.size - @lingering.size
      @busy.to_a.each do |socket, fiber|
        @scheduler.cancel_fiber(fiber) unless fiber.equal?(Fiber.current)
        socket.close
      end
    end

    # @return [Boolean] whether bytes have come
    def request?(connection)
      Watching.read_ahead?(connection, IO::READABLE) || !Fiber.blocking { connection.to_io.wait_readable(0) }.nil?
    rescue SystemCallError, IOError
      false
    end

    def serve(socket, handshake)
      VM.replace_storage(@storage) # the accept watcher may have been renewed in any fiber
      connection = socket
      @busy[socket.to_io] = Fiber.current
      if handshake
        connection = @handshake_timeout ? Timeout.timeout(@handshake_timeout, HandshakeTimeout) { handshake.call(socket) } : handshake.call(socket)
        VM.replace_storage(@storage)
      end
      kept = answer_requests(connection, &@answer)
      rests = kept && !closing? && !connection.to_io.closed?
    rescue StandardError => error
      raise if @scheduler.forked_child? || !client_gone?(error, socket) # the exit status of a child that the block has forked
    ensure
      @busy.delete(socket.to_io)
      VM.replace_storage(@storage) # the watchers of this and of the next connection inherit it
      finish(connection, kept, rests)
    end

    def finish(connection, kept, rests)
      return gone if kept == :detached

      rests ? @scheduler.on_ready(connection, timeout: @idle_timeout, &@bytes) : drop(connection)
    end

    def client_gone?(error, socket)
      case error
      when *CLIENT_GONE, IO::TimeoutError, HandshakeTimeout then true
      when IOError then socket.closed? # by {#stop}, or by the block
      else defined?(OpenSSL::SSL::SSLError) && error.is_a?(OpenSSL::SSL::SSLError)
      end
    end

    # Yields the connection for each request, until none comes within the time for lingering.
    #
    # @return [Boolean, :detached] whether the connection is kept
    def answer_requests(connection)
      io, fiber = connection.to_io, Fiber.current
      while (kept = yield connection)
        return kept if kept == :detached

        VM.replace_storage(@storage) if @storage || fiber.storage
        next if @stopping ? request?(connection) : Watching.read_ahead?(connection, IO::READABLE)
        return true if @stopping || @linger.zero?

        @lingering[fiber] = true
        return true unless @scheduler.linger(io, @linger)

        @lingering.delete(fiber)
      end
    ensure
      @lingering.delete(fiber)
    end

    def drop(connection)
      connection.close
    rescue SystemCallError, IOError
      nil
    ensure
      gone
      notify(@on_close, connection)
    end

    def notify(callback, connection)
      callback&.call(connection)
    rescue StandardError => error
      @scheduler.report_error(error)
    end

    # A connection is closed, or no longer the server's.
    def gone
      @connections -= 1
      @ended.close if ended?
      accept_more
    end

    def resting = @scheduler.watchers.select { |watcher| watcher.runs?(@first_bytes) || watcher.runs?(@bytes) }

    # @yieldparam connection
    # @yieldreturn [#close, nil] what is to be closed of it; nil: it goes on
    # @return [Integer] connections that were closed
    def close_resting
      resting.count do |watcher|
        connection = watcher.io
        closed = yield(connection) if connection
        drop(closed) || true if closed && watcher.cancel
      end
    end
  end
end

# frozen_string_literal: true

require "timeout"
require_relative "server/resting"

module Reactor
  # Serves a listening socket. A connection occupies a fiber from the first byte of a request to the end of the response. The
  # fiber then lingers briefly, so that a busy connection needs no new fiber for its next request. After that, the idle connection
  # waits without a fiber ({Watching#on_ready}).
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
  # The block is called when bytes have arrived. It reads one request, responds, and returns whether to keep the connection. If
  # only part of the request has arrived, the read waits; it is up to the block to limit that time (`Timeout.timeout`,
  # `IO#timeout=`).
  #
  # Each call of the block starts with a copy of the fiber storage that was current when {#start} was called, regardless of what
  # the block stored there during earlier requests.
  #
  # For protocols in which the server speaks first (such as SMTP), `speaks: :first` calls the block as soon as a connection is
  # accepted.
  #
  # With TLS, the handshake runs in the fiber, once the client's first bytes have arrived:
  #
  #   handshake = lambda do |socket|
  #     OpenSSL::SSL::SSLSocket.new(socket, context).tap { |tls| tls.sync_close = true; tls.accept }
  #   end
  #   Reactor::Server.new(TCPServer.new(8443), handshake: handshake) { |tls| … }
  #
  # If the block raises because the client is gone or too slow, the connection is closed and nothing is reported. That is the case
  # for the errors of {CLIENT_GONE}, `IO::TimeoutError`, `OpenSSL::SSL::SSLError`, and an IOError when the connection is closed.
  #
  # Any other error closes the connection and ends the fiber: the error goes to the scheduler's `on_error` or is reported, and
  # {Lifecycle#run} raises it at its end. Errors of accept(2) that its manual page does not list are handled the same way. So is
  # the error when there is no memory for a fiber; the connection that needed the fiber is closed. The server keeps running in
  # each case; when it cannot accept connections, it retries after a pause.
  #
  # When the scheduler cancels its fibers (exit, Interrupt, Thread#kill), the listener and all connections are closed.
  class Server
    # The most connections accepted in one turn. The first turn accepts one, and each turn one more than the turn before while there
    # are more, so that processes which share a listener share a burst.
    ACCEPTS_PER_TURN = 64

    # The most fibers that linger at once. The stacks of a burst's fibers stay in memory, at most 20 MB of them. A busy connection that
    # gets a new fiber for each request takes a tenth more CPU, or more.
    MOST_LINGERING = 1_024

    # Seconds for which nothing is accepted after an error that would probably recur at once.
    PAUSE = 0.1

    # The errors of reads and writes once the client has closed the connection.
    CLIENT_GONE = [EOFError, Errno::EPIPE, Errno::ECONNRESET, Errno::ECONNABORTED, Errno::ENOTCONN, Errno::ETIMEDOUT].freeze

    # Errors of accept(2) that concern a single connection.
    ABORTED = [Errno::ECONNABORTED, Errno::EPROTO, Errno::EINTR].freeze
    # Temporary errors of accept(2) that concern the process, the machine or the network.
    PASSING = [
      Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM, Errno::EPERM, Errno::ENETDOWN, Errno::ENOPROTOOPT, Errno::EHOSTDOWN,
      Errno::ENONET, Errno::EHOSTUNREACH, Errno::EOPNOTSUPP, Errno::ENETUNREACH
    ].freeze
    # Reasons for the end of the listener's watcher after which a new watcher is made. If the scheduler has cancelled the watcher,
    # the server is ending.
    RENEWED = %i[ready timeout failed].freeze
    HandshakeTimeout = Class.new(Timeout::Error)
    private_constant :ACCEPTS_PER_TURN, :MOST_LINGERING, :PAUSE, :ABORTED, :PASSING, :RENEWED, :HandshakeTimeout

    # @return [Integer] open connections
    attr_reader :connections

    # @param listener [TCPServer, UNIXServer, Socket] is already listening
    # @param scheduler [Lifecycle] by default the current thread's
    # @param limit [Integer, nil] maximum number of connections; more wait in the listener's queue
    # @param evict [Boolean] whether to close the connection that has been idle for longest, instead, if there is one
    # @param idle_timeout [Numeric, nil] seconds after which an idle connection is closed
    # @param grace [Numeric] seconds for which {#stop} keeps idle connections open: a request that arrives in that time is served
    # @param linger [Numeric] seconds for which the fiber waits for the next request; 0: not at all
    # @param handshake [#call, nil] is given each new socket when its first bytes have arrived, and returns the connection
    # @param handshake_timeout [Numeric, nil] seconds after which an unfinished handshake is abandoned and its connection closed;
    #   nil: no limit
    # @param speaks [Symbol, nil] :first: the block is called before any bytes have arrived
    # @param on_open [#call, nil] is given each socket when it is accepted
    # @param on_close [#call, nil] is given each connection when it has been closed. An error in on_open or on_close is reported,
    #   and has no other effect.
    # @yieldparam connection [IO, #to_io]
    # @yieldreturn [Boolean, :detached] whether to keep the connection; :detached: it stays open, and belongs to the program from
    #   now on
    # @raise [ArgumentError] no block; no scheduler of this library; a limit below 1; a negative duration
    # @raise [TypeError] listener is not a listening socket; limit is not an Integer; idle_timeout, linger or handshake_timeout is
    #   not a duration; a callback does not respond to call
    def initialize(listener, scheduler: Fiber.scheduler, limit: nil, evict: false, idle_timeout: nil, linger: 0.5, grace: 0, handshake: nil,
                   handshake_timeout: 10, speaks: nil, on_open: nil, on_close: nil, &block)
      raise ArgumentError, "no block given" unless block
      raise TypeError, "listener must be a listening socket, not #{listener.class}" unless listener.respond_to?(:accept_nonblock)
      raise ArgumentError, "no scheduler of this library: call this in the block of Reactor.run" unless scheduler.is_a?(Schedulers::Member)
      raise TypeError, "linger must be a number of seconds (0 disables lingering)" if linger.nil?
      raise ArgumentError, "speaks must be :first or nil, not #{speaks.inspect}" unless [:first, nil].include?(speaks)

      { handshake: handshake, on_open: on_open, on_close: on_close }.each do |name, callback|
        raise TypeError, "#{name} must respond to call" unless callback.nil? || callback.respond_to?(:call)
      end

      @listener = listener
      @scheduler = scheduler
      @thread = Thread.current
      @limit = limit && Checks.count(:limit, limit)
      @evict = evict
      @idle_timeout = Checks.seconds(:idle_timeout, idle_timeout)
      @linger = Checks.seconds(:linger, linger)
      @grace = Checks.seconds(:grace, grace)
      @handshake = handshake
      @handshake_timeout = Checks.seconds(:handshake_timeout, handshake_timeout)
      @first_events = speaks ? IO::WRITABLE : IO::READABLE # a new socket is writable
      @on_open, @on_close = on_open, on_close
      @answer = block
      @connections, @accepts = 0, 1
      @busy = {}.compare_by_identity # socket => the fiber that serves it
      @resting = Resting.new(scheduler, method(:drop))
      @lingering = {}.compare_by_identity # fibers of @busy that wait for their next request
      # One Proc for all connections. (Method#to_proc would leave a C frame on every fiber's stack.)
      @accept = ->(_events, socket) { accept(socket) }
      @first_bytes = ->(events, socket) { events ? serve(socket, @handshake) : drop(socket) }
      @bytes = ->(events, connection) { events ? serve(connection, nil) : drop(connection) }
      @ended = Thread::Queue.new # closed when a stopping server has no connections left
      @cut = 0
      @accepting = @stopping = nil
    end

    # @return [Boolean] whether {#stop} has been called
    def stopping? = !@stopping.nil?

    # Starts to accept connections, and returns at once.
    #
    # @return [self]
    # @raise [RuntimeError] the server has been stopped
    def start
      raise "this server has been stopped" if @stopping

      @storage = Fiber.current.storage
      @scheduler.add_server(self)
      accept_more
      self
    end

    # Stops the server. Call it in a fiber; a trap handler can signal that fiber, as shown above. `stop` accepts the connections
    # in the listener's queue, even beyond the limit, and then no more; when descriptors are exhausted, it retries until one is
    # free. It closes idle connections that have not sent a request, and waits until the fibers have answered the requests that
    # have arrived and no longer linger.
    #
    # When `timeout` elapses, {Cancelled} is raised in the fibers that still serve, and the remaining connections are closed. `stop`
    # does not wait for these fibers. A second call with a shorter timeout hastens the first.
    #
    # @param timeout [Numeric, nil] seconds; nil: no limit
    # @raise [ArgumentError, TypeError] the timeout is not a duration; nothing has been stopped
    # @raise [ThreadError] called on a thread other than the scheduler's, or in a trap handler; nothing has been stopped
    # @return [Integer] connections that were closed before their responses were complete, or before a request that had arrived
    #   was read
    def stop(timeout = nil)
      timeout = Checks.seconds(:timeout, timeout)
      raise ThreadError, "this server belongs to another thread" unless Thread.current.equal?(@thread)

      Thread::Mutex.new.synchronize { nil } # raises ThreadError in a trap handler, where we could not wait for the fibers
      deadline = timeout && (Clock.now + timeout)
      stop_accepting(deadline) unless @stopping
      @ended.pop(timeout: deadline && [deadline - Clock.now, 0].max) unless ended?
      cut
      @scheduler.forget_server(self)
      @cut
    end

    # Closes the listener and the idle connections, because the scheduler is ending its watchers and fibers. It does not wait, so
    # TLS clients get no close_notify.
    #
    # @api private
    def abandon
      @stopping = true
      @listener.close
      @resting.close_all
    end

    # Called when there was no memory for the fiber of a watcher.
    #
    # @param block [Proc] the watcher's
    # @param io [#to_io] the watched object
    # @api private
    def recover(block, io)
      accept_more(PAUSE) if block.equal?(@accept)
      drop(io.to_io) if serves?(block)
    end

    # @api private
    def serves?(block) = block.equal?(@first_bytes) || block.equal?(@bytes)

    # @return [String] includes the number of open connections
    def inspect = "#<#{self.class} #{@connections} connections#{", stopped" if @stopping}>"

    private

    def full? = !@limit.nil? && @connections >= @limit && !(@evict && @resting.longest_idle)

    # @param pause [Numeric, nil] seconds to wait before accepting; nil: accept when a connection arrives. (A pause waits for
    #   priority events, because a listener never has any.)
    def accept_more(pause = nil)
      return if @stopping || full? || @listener.closed? || !(@accepting.nil? || RENEWED.include?(@accepting.ended))

      @accepting = @scheduler.on_ready(@listener, pause ? IO::PRIORITY : IO::READABLE, timeout: pause, &@accept)
    end

    def accept(listener)
      accepted_all = @accepts.times { break if @stopping || full? || !accept_one(listener) }
      @accepts = accepted_all ? [@accepts + 1, ACCEPTS_PER_TURN].min : 1
      accept_more
    rescue StandardError => error
      accept_more(PAUSE)
      raise unless PASSING.include?(error.class)
    end

    # @return [Boolean] whether there may be another connection
    def accept_one(listener)
      socket, = listener.accept_nonblock(exception: false)
      return false if socket == :wait_readable

      @connections += 1
      @resting.close_longest_idle if @limit && @connections > @limit && !@stopping
      @on_open ? Fiber.schedule { begin_connection(socket) } : begin_connection(socket)
      true
    rescue *ABORTED
      true
    rescue FiberError
      drop(socket) # its fiber found no memory
      raise
    end

    # The callback may wait, and may close the socket.
    def begin_connection(socket)
      @busy[socket] = Fiber.current if @on_open
      notify(@on_open, socket)
      watched = @resting.watch(socket, @first_events, @idle_timeout, @first_bytes) unless socket.closed? || @listener.closed?
    ensure
      @busy.delete(socket)
      drop(socket) unless watched
    end

    def stop_accepting(deadline)
      @stopping = true
      @accepting&.cancel
      unless accept_queue
        @resting.close_idle # frees descriptors
        sleep PAUSE until accept_queue || (deadline && Clock.now >= deadline)
      end
      @listener.close
      wait_for_last_requests(deadline)
      @resting.close_idle
      @connections = @busy.size + @resting.size # the program may have closed some connections itself
      @ended.close if ended?
    end

    # Waits for the last requests of connections that are idle or become idle meanwhile.
    def wait_for_last_requests(deadline)
      seconds = [@grace, deadline && (deadline - Clock.now)].compact.min
      return unless seconds.positive? && @connections.positive?

      @in_grace = true
      @ended.pop(timeout: seconds)
    ensure
      @in_grace = false
    end

    # @return [Boolean] whether to close connections after the response
    def closing? = @stopping && !@in_grace

    def ended? = @stopping && @listener.closed? && !@connections.positive?

    # Accepts the connections in the listener's queue, because closing it would reset them.
    #
    # @return [Boolean] false if descriptors or memory are exhausted
    def accept_queue
      Socket::SOMAXCONN.times { break unless accept_one(@listener) }
      true
    rescue *PASSING
      false
    rescue SystemCallError, IOError
      true # the kernel resets these connections
    end

    # Cancels the fibers that are still serving, and closes all connections, including those that no fiber serves yet and those not
    # yet accepted.
    def cut
      @listener.close
      @cut += @resting.close_all + @busy.size - @lingering.size
      @busy.to_a.each do |socket, fiber|
        Scope.end_fiber(@scheduler, fiber, :stopped) unless fiber.equal?(Fiber.current)
        socket.close
      end
    end

    def serve(socket, handshake)
      VM.replace_storage(@storage) # the fiber that re-armed the accept watcher may have had another storage
      connection = socket
      @resting.delete(socket.to_io)
      @busy[socket.to_io] = Fiber.current
      if handshake
        connection = @handshake_timeout ? Timeout.timeout(@handshake_timeout, HandshakeTimeout) { handshake.call(socket) } : handshake.call(socket)
        VM.replace_storage(@storage)
      end
      kept = answer_requests(connection, &@answer)
      rests = kept && !closing? && !connection.to_io.closed?
    rescue StandardError => error
      raise if @scheduler.forked_child? || !client_gone?(error, socket) # in a forked child, the error decides the exit status
    ensure
      @busy.delete(socket.to_io)
      VM.replace_storage(@storage) # the watchers of this connection and of the next one inherit this storage
      finish(connection, kept, rests)
    end

    def finish(connection, kept, rests)
      return gone if kept == :detached

      return drop(connection) unless rests

      @resting.watch(connection, IO::READABLE, @idle_timeout, @bytes)
      accept_more if @evict
    end

    def client_gone?(error, socket)
      case error
      when *CLIENT_GONE, IO::TimeoutError, HandshakeTimeout then true
      when IOError then socket.closed? # by {#stop}, or by the block
      else defined?(OpenSSL::SSL::SSLError) && error.is_a?(OpenSSL::SSL::SSLError)
      end
    end

    # Yields the connection for each request, until none arrives within the lingering time.
    #
    # @return [Boolean, :detached] whether to keep the connection
    def answer_requests(connection)
      io, fiber = connection.to_io, Fiber.current
      while (kept = yield connection)
        return kept if kept == :detached

        VM.replace_storage(@storage) if @storage || fiber.storage
        next if @stopping ? @resting.request?(connection) : Watching.read_ahead?(connection, IO::READABLE)
        return !at_end?(io) if @stopping || @linger.zero? || @lingering.size >= MOST_LINGERING

        @lingering[fiber] = true
        return true unless @scheduler.linger(io, @linger)

        @lingering.delete(fiber)
        return false if at_end?(io)
      end
    ensure
      @lingering.delete(fiber)
    end

    # @return [Boolean] whether the client sends no more, and all of it has been read
    def at_end?(io)
      @scheduler.hung_up?(io) && ["", nil].include?(io.recv_nonblock(1, Socket::MSG_PEEK, exception: false))
    rescue SystemCallError, IOError
      true
    end

    def drop(connection)
      @resting.delete(connection.to_io)
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

    # Called when a connection has been closed or detached.
    def gone
      @connections -= 1
      @ended.close if ended?
      accept_more
    end
  end
end

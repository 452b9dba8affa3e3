# frozen_string_literal: true

require "reactor"
require "socket"
require_relative "rack/admission"
require_relative "rack/proxies"
require_relative "rack/statuses"
require_relative "rack/writing"
require_relative "rack/stream"
require_relative "rack/connection"
require_relative "rack/input"
require_relative "rack/response"
require_relative "rack/service"

module Reactor
  # Serves a Rack application (Rack 3) over HTTP/1.1: `rackup -s reactor`, or
  #
  #   require "reactor/rack"
  #   Reactor::Rack.new(app).run(port: 9292, workers: 2)
  #
  # or, beside other fibers in a program that already has a scheduler:
  #
  #   server = Reactor::Rack.new(app).serve(TCPServer.new(9292))
  #   server.stop(10)
  #
  # Each request calls the application in a fiber; other requests continue while it waits. An idle connection has no fiber
  # ({Server}). Keep-alive, pipelining, chunked and streamed bodies in both directions, `rack.hijack`, `rack.protocol`,
  # `rack.early_hints`, `rack.response_finished`, 100-continue and TLS are supported.
  #
  # An exception in the application is logged and answered with 500. If part of the response has been sent already, the connection
  # is reset, so that the client knows the response is incomplete. A request that violates HTTP or a limit is answered with 4xx,
  # and its connection is closed.
  class Rack
    # The default limits. Times are in seconds, sizes in bytes.
    #
    # - `header_size`: size of the request line and the headers (else 431); there may be at most 100 headers
    # - `header_timeout`: time from the first byte of a request to the end of its headers (else 408)
    # - `body_size`: size of a request body (else 413)
    # - `body_timeout`: time from the first read of a body to its end (else 408)
    # - `write_timeout`: time for which a client may send nothing of a body (else 408), and of which it may let two pass in a row
    #   without taking anything of a response
    # - `requests`: requests per connection
    # - `connections`: simultaneous connections; for one more, that which has been idle for longest is closed, or else it waits in the
    #   listener's queue
    # - `idle_timeout`: time for which a connection may have no request
    DEFAULTS = {
      header_size: 32_768, header_timeout: 10, body_size: 64 << 20, body_timeout: 300, write_timeout: 30, requests: 10_000, connections: 10_000,
      idle_timeout: 75
    }.freeze

    # The limits of one {Rack}; see {DEFAULTS}.
    Limits = Data.define(*DEFAULTS.keys)

    # Seconds after {Server#stop} in which a kept-alive connection may send one more request. The response announces the close, so
    # the client does not send a request into a closing connection.
    GRACE = 1
    # Keywords of {#run}.
    RUNS = %i[host port workers stop_timeout backend scheduler reuse_port backlog socket_mode worker_timeout before_fork after_fork].freeze
    # Where errors and restarts go without a logger. (Logger is not in Ruby 4.0's library, but in a gem.)
    module Stderr
      def self.error(text = yield) = $stderr.puts("#{Time.now.strftime('%FT%T')} reactor: #{text}")
      singleton_class.alias_method :info, :error
    end
    private_constant :GRACE, :RUNS, :Stderr

    # @return [Limits]
    attr_reader :limits

    # @param app [#call] a Rack application
    # @param tls [OpenSSL::SSL::SSLContext, nil] has the certificate and key, and gets an ALPN callback that selects http/1.1
    #   unless it has one; nil: no TLS
    # @param logger [Logger, nil] receives the application's errors, and what becomes of workers; nil: they go to $stderr
    # @param access_log [Logger, nil] receives a line per response, in the Common Log Format followed by the seconds since the
    #   request's first byte
    # @param overload [Numeric, nil] seconds a request may wait for its turn: when requests wait longer, just enough of them are
    #   answered with 503 and Retry-After; nil: all wait
    # @param on_error [#call, nil] is called with each unrescued error and the environment of its request; the environment is nil if
    #   the error ended a fiber that the application had started under {#run}; nil: errors go to the logger
    # @param trusted_proxies [String, Array<String>, nil] addresses and networks of proxies, such as 10.0.0.0/8, whose X-Forwarded-For
    #   and X-Forwarded-Proto are put into the environment. The peer of a UNIX socket has the address 127.0.0.1. nil: none
    # @param limits see {DEFAULTS}
    # @raise [TypeError] app or on_error does not respond to call; a limit is not a number
    # @raise [ArgumentError] a limit is unknown or not positive; a trusted proxy is not an address
    def initialize(app, tls: nil, logger: nil, access_log: nil, on_error: nil, overload: nil, trusted_proxies: nil, **limits)
      raise TypeError, "a Rack application must respond to call, and #{app.class} does not" unless app.respond_to?(:call)

      { logger: [logger, :error, :info], access_log: [access_log, :info] }.each do |name, (object, *methods)|
        raise TypeError, "#{name} must be a Logger, not #{object.class}" unless object.nil? || methods.all? { |method| object.respond_to?(method) }
      end
      raise TypeError, "on_error must respond to call" unless on_error.nil? || on_error.respond_to?(:call)

      @app = app
      @tls = tls
      tls.alpn_select_cb ||= ->(offered) { "http/1.1" if offered.include?("http/1.1") } if tls && !tls.frozen?
      @logger = logger || Stderr
      @access_log = access_log
      @on_error = on_error || method(:log_error)
      @limits = Limits.new(**DEFAULTS, **checked(limits))
      @admission = Admission.new(Checks.seconds(:overload, overload)) if overload
      @proxies = Proxies.new(trusted_proxies) if trusted_proxies
      @environment = {
        "rack.url_scheme" => tls ? "https" : "http", "rack.errors" => $stderr, "rack.hijack?" => true, "SCRIPT_NAME" => "",
        "SERVER_NAME" => "localhost", "SERVER_PORT" => tls ? "443" : "80", "SERVER_SOFTWARE" => "reactor/#{VERSION}",
        **(tls ? { "HTTPS" => "on" } : {})
      }.freeze
    end

    # Serves the application on a listener. Call it on a thread that has a scheduler.
    #
    # @param listener [TCPServer, UNIXServer, Socket] is already listening
    # @return [Server] has started; stop it by {Server#stop}
    # @raise [ArgumentError] the thread has no scheduler of this library
    def serve(listener)
      listener.setsockopt(:TCP, :NODELAY, true) if listener.local_address.ip? # connections inherit this option
      server = nil # set before the first connection opens
      open = ->(socket) { Connection.new(self, server, @tls ? handshake(socket) : socket) }
      server = Server.new(listener, limit: most_connections, evict: true, idle_timeout: @limits.idle_timeout, grace: GRACE, handshake: open,
                                    handshake_timeout: @tls && @limits.header_timeout, &:answer)
      server.start
    end

    # Serves the application until TERM or INT. Requests that have arrived by then are answered; a second signal cuts that short.
    #
    # @param host [String, Array<String>] names or addresses; unix:PATH for a UNIX socket. Sockets that systemd has opened for this
    #   process (LISTEN_FDS) are served instead.
    # @param port [Integer] 0: any free port
    # @param workers [Integer] number of processes to fork; 0: this process serves. A worker that dies is replaced. HUP and USR1
    #   replace all workers, one after another, while the listeners stay open.
    # @param stop_timeout [Numeric] seconds after the signal in which responses may be completed
    # @param backend see {Lifecycle#initialize}
    # @param scheduler [Hash] `stall`, `on_stall`, `workers` (for {Reactor.offload}) and `policy` of {Lifecycle#initialize}
    # @param reuse_port [Boolean] whether each worker gets a listener of its own, among which the kernel distributes connections
    #   (SO_REUSEPORT); otherwise the workers share one, and a worker that computes accepts nothing
    # @param backlog [Integer] connections that may wait in the queue of each listener, at least 1
    # @param socket_mode [Integer, nil] permissions of UNIX sockets, at most 0777; nil: those of the umask
    # @param worker_timeout [Numeric, nil] seconds after which a worker is killed and replaced if its loop has not run meanwhile,
    #   because it computes or hangs; nil: no limit
    # @param before_fork [#call, nil] is called in the parent before it forks a worker
    # @param after_fork [#call, nil] is called in each worker before it serves. What a worker is to do at its end, it can pass to at_exit.
    # @yieldparam service [Service] once it is listening and handles signals
    # @return [nil]
    # @raise [TypeError, ArgumentError] an option is of another type or out of range
    # @raise [ArgumentError] the backend is unknown, or unavailable for the reason in the message
    # @raise [SystemCallError] the address is in use, or does not belong to this machine
    # @raise [RuntimeError] this thread has a scheduler already
    # @raise [NotImplementedError] workers without fork(2), or reuse_port without SO_REUSEPORT
    def run(host: "localhost", port: 9292, workers: 0, stop_timeout: 10, backend: nil, scheduler: {}, reuse_port: false,
            backlog: Socket::SOMAXCONN, socket_mode: nil, worker_timeout: nil, before_fork: nil, after_fork: nil, &begun)
      Service.new(self, @logger, host:, port:, workers:, stop_timeout:, backend:, scheduler:, reuse_port:, backlog:, socket_mode:, worker_timeout:,
                                 before_fork:, after_fork:).run(&begun)
    end

    # Opens the files of the loggers again, after they have been renamed.
    #
    # @api private
    def reopen_logs = [@logger, @access_log].each { |log| log.reopen if log.respond_to?(:reopen) }

    # @api private
    def tls? = !@tls.nil?

    # @api private
    def environment(connection)
      env = @environment.dup
      env["REMOTE_ADDR"] = connection.address
      env["reactor.connection"] = connection
      env
    end

    # Puts into the environment of a request what a trusted proxy says.
    #
    # @api private
    def believe_proxy(env) = @proxies&.believe(env)

    # @return [Boolean] whether to serve one more request now
    # @api private
    def admit? = @admission.nil? || @admission.admit?

    # Answers one request. What is left of its body is read after the response's body has been closed.
    #
    # @return [Boolean, :detached] whether to keep the connection
    # @api private
    def respond(connection, env)
      input = env["rack.input"]
      connection.finish(input, call(connection, env, input))
    end

    # @param env [Hash, nil] environment of the request; nil: the error ended a fiber
    # @api private
    def report(error, env)
      @on_error.call(error, env)
    rescue SignalException, Cancelled
      raise
    rescue Exception => second # rubocop:disable Lint/RescueException -- on_error has failed
      warn("reactor: failed to report an error of the application: #{error.class} (reporting raised #{second.class})")
    end

    # Logs a response.
    #
    # @param env [Hash] lacks the request if its head was refused
    # @param head [String] its bytes, in that case
    # @api private
    def log(connection, env, status, bytes, head = "")
      @access_log&.info do
        request = env.key?("REQUEST_URI") ? env.values_at("REQUEST_METHOD", "REQUEST_URI", "SERVER_PROTOCOL").join(" ") : head[/\A[^\r\n]{1,200}/n] || "-"
        format("%<address>s - - [%<time>s] %<request>p %<status>d %<bytes>d %<seconds>.4f",
               address: env.fetch("REMOTE_ADDR", connection.address), time: Time.now.strftime("%d/%b/%Y:%H:%M:%S %z"), request: request,
               status: status, bytes: bytes, seconds: Clock.now - connection.began_at)
      end
    end

    # @return [String] the `date` header for the current second
    # @api private
    def date
      now = Process.clock_gettime(Process::CLOCK_REALTIME, :second)
      return @date if @date_of == now

      date = "date: #{Time.at(now).utc.strftime('%a, %d %b %Y %H:%M:%S GMT')}\r\n"
      @date, @date_of = date, now
      date
    end

    private

    # @return [Boolean, :detached] whether to keep the connection
    def call(connection, env, input)
      response = Response.new(self, connection, env)
      offer(env, response)
      status, headers, body = @app.call(env)
      return :detached if env.key?("rack.hijack_io")

      response.write(status, headers, body, input)
    rescue Refused, Gone => error
      raise unless response.began && Refused === error

      connection.abort
    rescue SignalException, Cancelled
      raise
    rescue Exception => error # rubocop:disable Lint/RescueException -- one request must not end the others
      failed(error, connection, response, env, input)
    ensure
      afterwards(env) { body.close } if body.respond_to?(:close)
      env["rack.response_finished"]&.reverse_each { |call| afterwards(env) { call.call(env, status, headers, error) } }
      afterwards(env) { log(connection, env, response.status, response.bytes) } if @access_log && response.status
    end

    def checked(limits)
      limits.each do |name, value|
        raise ArgumentError, "unknown keyword: :#{name}#{" (#run takes it)" if RUNS.include?(name)}" unless DEFAULTS.key?(name)
        raise TypeError, "#{name} must be a number, not #{value.class}" unless Numeric === value
        raise ArgumentError, "#{name} must be positive" unless value.positive?
      end
    end

    # Open files are left for the application.
    def most_connections
      return @limits.connections unless Process.respond_to?(:getrlimit)

      [@limits.connections, [Process.getrlimit(:NOFILE).first * 3 / 4, 1].max].min
    end

    def handshake(socket)
      OpenSSL::SSL::SSLSocket.new(socket, @tls).tap do |tls|
        tls.sync_close = true
        tls.accept
      rescue StandardError
        Writing.forget_errors(tls)
        raise
      end
    end

    def offer(env, response)
      env["rack.hijack"] = -> { env["rack.hijack_io"] ||= response.hijack }
      env["rack.early_hints"] = ->(headers) { response.early_hints(headers) }
      env["rack.response_finished"] = []
    end

    # Handles an exception of the application. It is not reported if the client went away while something was written to it.
    def failed(error, connection, response, env, input)
      is_clients = [*Server::CLIENT_GONE, IO::TimeoutError].any? { |gone| gone === error } && (response.began ? connection.lost? : connection.write_failed?)
      report(error, env) unless is_clients
      return :detached if env.key?("rack.hijack_io")
      return connection.abort if response.began || is_clients

      response.write(500, { "content-type" => "text/plain" }, ["Internal Server Error\n"], input)
    end

    # Runs a callback that follows the response.
    def afterwards(env)
      yield
    rescue SignalException, Cancelled
      raise
    rescue Exception => error # rubocop:disable Lint/RescueException -- as in #respond
      report(error, env)
    end

    def log_error(error, env)
      @logger.error { "#{env ? "#{env['REQUEST_METHOD']} #{env['PATH_INFO']}" : 'in a fiber'}: #{error.full_message(highlight: false)}" }
    end
  end
end

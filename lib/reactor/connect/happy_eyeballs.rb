# frozen_string_literal: true

require_relative "../checks"
require_relative "../socket_arguments"
require_relative "outcome"

module Reactor
  # Connects by Happy Eyeballs (RFC 8305), in a single fiber, to a host that may have several addresses. Ruby 3.4 and later do the
  # same in TCPSocket.new and Socket.tcp.
  #
  # The resolver is asked for both families at once, as in other programs. So the DNS is not queried for one family when
  # /etc/hosts has the other. If there is no answer within 250 ms, IPv4 is also requested alone, because some nameservers never
  # answer for IPv6. The first answer that has addresses is used.
  #
  # Addresses are tried in the order of getaddrinfo(3) (RFC 6724), alternating between families: each one 250 ms after the
  # previous one, or at once when an attempt has failed. The first connection wins, and the other sockets are closed.
  #
  # - `connect_timeout`: seconds after the start of the last attempt, when no address is left to try
  # - `resolv_timeout`: seconds until the resolver has returned an address
  # - `open_timeout`: seconds for everything (Ruby 4.0 and later)
  #
  # @api private
  class HappyEyeballs
    ATTEMPT_DELAY = 0.25
    # Seconds to wait for an answer before requesting IPv4 alone.
    IPV4_FALLBACK_DELAY = 0.25
    private_constant :ATTEMPT_DELAY, :IPV4_FALLBACK_DELAY

    class << self
      # @return [Boolean] whether Ruby itself uses Happy Eyeballs by default
      def ruby_default? = SocketArguments::TCP_OPTIONS.include?(:fast_fallback) && !!Socket.tcp_fast_fallback

      # @return [Boolean] whether Ruby accepts these options, and their combination
      def options?(options)
        (options.keys - SocketArguments::TCP_OPTIONS).empty? && !(options[:open_timeout] && (options[:connect_timeout] || options[:resolv_timeout]))
      end

      # @param parallel [Boolean] whether to try several addresses at a time; otherwise the next address is tried only when the
      #   previous one has failed or its `connect_timeout` has elapsed
      # @return [HappyEyeballs, nil] nil if Ruby should connect, because it rejects the arguments
      def for(host, service, local_host, local_service, options, parallel)
        scheduler = Schedulers.current
        return unless scheduler&.resolves? && options?(options)
        return unless SocketArguments.service_and_flags(service) && (host.nil? || SocketArguments.host_text(host))

        new(scheduler, host, service, [local_host, local_service], parallel, **options)
      end
    end

    def initialize(scheduler, host, service, local, parallel, connect_timeout: nil, resolv_timeout: nil, open_timeout: nil, fast_fallback: nil)
      @scheduler = scheduler
      @host = host
      @service = service
      @local = local
      @parallel = parallel
      @connect_timeout = Checks.seconds(nil, connect_timeout)
      @resolv_timeout = Checks.seconds(nil, resolv_timeout)
      @open_timeout = Checks.seconds(nil, open_timeout)
      @lookups = []  # requests to the resolver; the first one is for all families
      @attempts = {} # socket => address it connects to
    end

    # @return [Socket] connected
    # @raise [SystemCallError, SocketError, IO::TimeoutError] as Ruby does
    def run
      @open_by = Clock.now + @open_timeout if @open_timeout
      @locals = @local.any? ? Addrinfo.getaddrinfo(*@local, nil, :STREAM, timeout: @open_timeout || @resolv_timeout) : []
      families = @locals.map(&:afamily).uniq
      @single = families.one?
      found = @single ? resolve(families.first) : resolve(Socket::AF_UNSPEC, Clock.now + IPV4_FALLBACK_DELAY)
      connect(@parallel ? alternating(found) : found)
    ensure
      @lookups.each(&:cancel)
      @attempts.each_key(&:close)
    end

    private

    # --- addresses -------------------------------------------------------------------------------------------------

    # @param ipv4_at [Float, nil] when to request IPv4 alone
    # @return [Array<Addrinfo>]
    def resolve(family, ipv4_at = nil)
      resolve_by = [@open_by, @resolv_timeout && (Clock.now + @resolv_timeout)].compact.min
      look_up(family)
      while true
        found = answer and return found
        raise timeout_error if past?(resolve_by)

        if past?(ipv4_at)
          ipv4_at = nil
          look_up(Socket::AF_INET)
        end
        @scheduler.wait_any([], [], Clock.left([resolve_by, ipv4_at].compact.min, Clock.now), @lookups)
      end
    end

    def look_up(family)
      service, flags = SocketArguments.service_and_flags(@service)
      host = @host && String.try_convert(@host)
      @lookups << @scheduler.lookup(host, service, family, Socket::SOCK_STREAM, Socket::IPPROTO_TCP, flags)
    end

    def answer
      lookup = @lookups.find(&:ended?)
      lookup&.answer(asker)&.map { |address| Addrinfo.new(*address) }
    rescue SocketError, SystemCallError
      raise if lookup.equal?(@lookups.first)

      @lookups.delete(lookup)
      nil # a failed lookup of IPv4 alone is not final
    end

    def alternating(addresses)
      same, others = addresses.partition { |address| address.afamily == addresses.first.afamily }
      (same.zip(others) + others.drop(same.size)).flatten.compact
    end

    # --- attempts --------------------------------------------------------------------------------------------------

    def connect(addresses)
      until addresses.empty? && @attempts.empty?
        if addresses.any? && (@attempts.empty? || past?(@next_at))
          connected = start(addresses.shift)
          connect_by = Clock.now + @connect_timeout if @connect_timeout && (addresses.empty? || !@parallel)
        else
          connected = wait([(@next_at if addresses.any?), connect_by, @open_by].compact.min)
          raise timeout_error if past?(@open_by) && !connected

          give_up if past?(connect_by) && !connected
        end
        return connected if connected
      end
      raise @error
    end

    def give_up
      @attempts.each_key(&:close).clear
      @error = @parallel ? timeout_error : IO::TimeoutError.new("Connect timed out!")
    end

    # Starts an attempt. Returns the socket if it connects at once, otherwise nil.
    def start(address)
      local = @locals.find { |candidate| candidate.afamily == address.afamily }
      stage = "socket(2)"
      socket = Socket.new(address.pfamily, address.socktype, address.protocol)
      if local
        stage = "bind(2)"
        bind(socket, local)
      end
      stage = "connect(2)"
      return socket unless socket.connect_nonblock(address, exception: false) == :wait_writable

      @attempts[socket] = address
      @next_at = @parallel ? Clock.now + ATTEMPT_DELAY : nil
      nil
    rescue SystemCallError => error
      socket&.close
      failed(failure(stage, error))
    end

    # Waits for the attempts until `limit`. Returns the first socket that has connected, or nil; closes those that have failed.
    def wait(limit)
      _, ready = IO.select(nil, @attempts.keys, nil, Clock.left(limit, Clock.now))
      ready&.each do |socket|
        address = @attempts.delete(socket)
        code = ConnectOutcome.errno(socket) or return socket

        socket.close
        failed(failure("connect(2)", SystemCallError.new("connect(2) for #{address.inspect_sockaddr}", code)))
      end
      nil
    end

    # Records the error, and lets the next address be tried at once.
    def failed(error)
      @error = error
      @next_at = Clock.now
      nil
    end

    # Whether this time has come; nil if no time is given.
    def past?(time) = time && Clock.now >= time

    # --- errors, the same as those of Socket.tcp -----------------------------------------------------------------------

    def asker = "getaddrinfo"

    def bind(socket, local) = socket.bind(local)

    def failure(_stage, error) = error

    def timeout_error = SocketArguments.timeout_error("#{SocketArguments.shown(@host)}:#{SocketArguments.shown(@service)}")

    # Raises the errors of TCPSocket.new.
    class ForTCPSocket < HappyEyeballs
      private

      def asker = @single || !@parallel ? "getaddrinfo" : "getaddrinfo(3)"

      def bind(socket, local)
        socket.setsockopt(Socket::SOL_SOCKET, Socket::SO_REUSEADDR, 1)
        socket.bind(local)
      end

      def failure(stage, error)
        host, service = stage == "bind(2)" ? @local : [@host, @service]
        SystemCallError.new("#{stage} for #{host.inspect} port #{SocketArguments.shown(service)}", error.errno)
      end

      def timeout_error = SocketArguments.timeout_error("#{SocketArguments.shown(@host)} port #{SocketArguments.shown(@service)}")
    end
  end
end

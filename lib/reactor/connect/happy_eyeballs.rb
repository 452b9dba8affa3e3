# frozen_string_literal: true

require "socket"
require_relative "../clock"
require_relative "../durations"
require_relative "../socket_arguments"
require_relative "../schedulers"

module Reactor
  # Connects to a host that may have several addresses, by Happy Eyeballs (RFC 8305) in one fiber and one wait, as Ruby 3.4
  # and later do it in TCPSocket.new and Socket.tcp.
  #
  # The addresses of both families are one question to the resolver, as in other programs. So a host that /etc/hosts has with
  # one family is not looked up in the DNS because of the other. If there is no answer within 250 ms, IPv4 is asked for alone
  # as well, because there are nameservers that never answer for IPv6. If IPv4 is answered first, the whole answer has 50 ms
  # to follow.
  #
  # The addresses are tried in the order of getaddrinfo(3) (RFC 6724), with the families alternating: the next one 250 ms
  # after the last, and at once when one has failed. The first connection wins, the other sockets are closed.
  #
  # - `connect_timeout`: seconds from the last attempt on, when there is no other address to try
  # - `resolv_timeout`: seconds for the resolver, until it has answered with an address
  # - `open_timeout`: seconds for everything (Ruby 4.0 and later)
  #
  # @api private
  class HappyEyeballs
    ATTEMPT_DELAY = 0.25
    RESOLUTION_DELAY = 0.05
    # Seconds without an answer after which IPv4 is asked for alone.
    IPV4_FALLBACK_DELAY = 0.25
    ANY_FAMILY = Socket::AF_UNSPEC
    private_constant :ATTEMPT_DELAY, :RESOLUTION_DELAY, :IPV4_FALLBACK_DELAY, :ANY_FAMILY

    class << self
      # @return [Boolean] whether Ruby itself connects by Happy Eyeballs if it is not told
      def ruby_default? = SocketArguments::TCP_OPTIONS.include?(:fast_fallback) && !!Socket.tcp_fast_fallback

      # @return [Boolean] whether Ruby accepts these options, and accepts them together
      def options?(options)
        (options.keys - SocketArguments::TCP_OPTIONS).empty? && !(options[:open_timeout] && (options[:connect_timeout] || options[:resolv_timeout]))
      end

      # @param parallel [Boolean] whether several addresses are to be tried at a time
      # @return [HappyEyeballs, nil] nil if Ruby is to do it, because it does not block the thread or refuses its arguments
      def for(host, service, local_host, local_service, options, parallel)
        scheduler = Schedulers.current
        return unless scheduler&.resolves? && options?(options) && SocketArguments.service_and_flags(service)
        return unless applies?(SocketArguments.host_text(host), host, service, local_service, parallel)

        new(scheduler, host, service, [local_host, local_service], **options)
      end

      private

      def applies?(text, host, _service, _local_service, parallel)
        parallel && (text ? !SocketArguments.address?(text) : host.nil?)
      end
    end

    def initialize(scheduler, host, service, local, connect_timeout: nil, resolv_timeout: nil, open_timeout: nil, fast_fallback: nil)
      @scheduler = scheduler
      @host = host
      @service = service
      @local = local
      @connect_timeout = Durations.seconds(connect_timeout)
      @resolv_timeout = Durations.seconds(resolv_timeout)
      @open_timeout = Durations.seconds(open_timeout)
      @lookups = {}   # family => the resolver's lookup
      @untried = []   # addresses that are known and not tried so far
      @tried = []     # addresses that were tried
      @attempts = {}  # socket => address it connects to
    end

    # @return [Socket] connected
    # @raise [SystemCallError, SocketError, IO::TimeoutError] as Ruby does
    def run
      begin_lookups
      loop do
        take_answers
        connected = attempt || finished
        return connected if connected

        check_time
        wait
      end
    ensure
      @lookups.each_value(&:cancel)
      @attempts.each_key(&:close)
    end

    private

    # --- addresses -------------------------------------------------------------------------------------------------

    def begin_lookups
      @resolve_by = now + @resolv_timeout if @resolv_timeout
      @open_by = now + @open_timeout if @open_timeout
      @locals = @local.any? ? Addrinfo.getaddrinfo(*@local, nil, :STREAM, timeout: @open_timeout || @resolv_timeout) : []
      families = @locals.map(&:afamily).uniq
      @single = families.one?
      look_up(@single ? families.first : ANY_FAMILY)
      @ipv4_at = now + IPV4_FALLBACK_DELAY unless @single
    end

    def look_up(family)
      service, flags = SocketArguments.service_and_flags(@service)
      host = @host && String.try_convert(@host)
      @lookups[family] = @scheduler.lookup(host, service, family, Socket::SOCK_STREAM, Socket::IPPROTO_TCP, flags)
    end

    # Takes the answers that have come, and asks for IPv4 alone if the whole answer is late.
    def take_answers
      ended = @lookups.select { |_, lookup| lookup.ended? }
      ended.each do |family, lookup|
        next unless @lookups.delete(family) # cancelled, because the whole answer has come in the same turn

        take(family, lookup.answer(asker).map { |address| Addrinfo.new(*address) })
      rescue SocketError, SystemCallError => error
        @error = error if family != Socket::AF_INET || @single
      end
      return unless past?(@ipv4_at) && @lookups.key?(ANY_FAMILY)

      @ipv4_at = nil
      look_up(Socket::AF_INET)
    end

    def take(family, addresses)
      if family == ANY_FAMILY
        @lookups.delete(Socket::AF_INET)&.cancel
        @resolution_until = nil
      elsif @lookups.key?(ANY_FAMILY)
        @resolution_until = now + RESOLUTION_DELAY
      end
      @untried = addresses.reject { |address| @tried.include?(address.ip_address) }
    end

    def addresses? = @untried.any?

    # The next address to try: of the other family than the last, if there is one.
    def next_address
      index = @untried.index { |address| address.afamily != @last_family } || 0
      address = @untried.delete_at(index) or return
      @last_family = address.afamily
      @tried << address.ip_address
      address
    end

    # --- attempts --------------------------------------------------------------------------------------------------

    # Begins an attempt if it is time to. Returns the socket if it is connected at once, else nil.
    def attempt
      return if past?(@resolution_until) == false || past?(@attempt_until) == false

      @resolution_until = @attempt_until = nil
      while (address = next_address)
        local = @locals.find { |candidate| candidate.afamily == address.afamily }
        if @locals.any? && !local
          @error = no_local_address
          next
        end
        socket = start(address, local) or next
        return socket unless @attempts.key?(socket)

        @attempt_until = now + ATTEMPT_DELAY
        @connect_by = now + @connect_timeout if @connect_timeout && !addresses?
        return
      end
    end

    # Returns a socket that is connected or among the attempts; nil if it failed.
    def start(address, local)
      stage = "socket(2)"
      socket = Socket.new(address.pfamily, address.socktype, address.protocol)
      if local
        stage = "bind(2)"
        bind(socket, local)
      end
      stage = "connect(2)"
      @attempts[socket] = address if socket.connect_nonblock(address, exception: false) == :wait_writable
      socket
    rescue SystemCallError => error
      socket&.close
      @error = failure(stage, error)
      nil
    end

    # Returns the socket of the first attempt that has succeeded, or nil; closes those that have failed.
    def finished
      return if @attempts.empty?

      _, ready = Fiber.blocking { IO.select(nil, @attempts.keys, nil, 0) }
      ready&.each do |socket|
        code = socket.getsockopt(Socket::SOL_SOCKET, Socket::SO_ERROR).int
        return socket.tap { @attempts.delete(socket) } if code.zero?

        address = @attempts.delete(socket)
        socket.close
        @error = failure("connect(2)", SystemCallError.new("connect(2) for #{address.inspect_sockaddr}", code))
        @attempt_until = nil # the next at once
      end
      attempt if ready && @attempt_until.nil?
    end

    # --- time ------------------------------------------------------------------------------------------------------

    def now = @scheduler.__send__(:now)

    # Whether this time has come; nil if there is none.
    def past?(time) = time && now >= time

    def check_time
      raise timeout_error if past?(@open_by)
      return if addresses?
      raise @error if @attempts.empty? && @lookups.empty?
      return unless @lookups.empty? || past?(@resolve_by)

      raise timeout_error if @attempts.empty? || past?(@connect_by)
    end

    def wait
      times = [@open_by, (@ipv4_at if @lookups.key?(ANY_FAMILY))]
      times << (addresses? ? @resolution_until || @attempt_until : last_chance)
      left = Clock.left(times.compact.min, now)
      @scheduler.wait_any(@attempts.keys, [IO::WRITABLE] * @attempts.size, left, @lookups.values)
    end

    # When neither an address nor a connection can come any more; nil: never.
    def last_chance
      limits = []
      limits << @resolve_by if @lookups.any?
      limits << @connect_by if @attempts.any?
      limits.max unless limits.include?(nil)
    end

    # --- errors, which are those of Socket.tcp -----------------------------------------------------------------------

    def asker = "getaddrinfo"

    def bind(socket, local) = socket.bind(local)

    def failure(_stage, error) = error

    def no_local_address = SocketError.new("no appropriate local address")

    def timeout_error = SocketArguments.timeout_error("#{SocketArguments.shown(@host)}:#{SocketArguments.shown(@service)}")

    # With the errors of TCPSocket.new.
    class ForTCPSocket < HappyEyeballs
      class << self
        private

        # Also for an address with a zone or a named service: Ruby would ask the hook for it, which knows neither.
        def applies?(text, host, service, local_service, parallel)
          return super unless text && SocketArguments.address?(text)

          text.include?("%") || ![service, local_service].all? { |each| SocketArguments.port?(each) }
        end
      end

      private

      def asker = @single ? "getaddrinfo" : "getaddrinfo(3)"

      def bind(socket, local)
        socket.setsockopt(Socket::SOL_SOCKET, Socket::SO_REUSEADDR, 1)
        socket.bind(local)
      end

      def failure(stage, error)
        host, service = stage == "bind(2)" ? @local : [@host, @service]
        SystemCallError.new("#{stage} for #{host.inspect} port #{SocketArguments.shown(service)}", error.errno)
      end

      def no_local_address = failure("bind(2)", Errno::EAFNOSUPPORT.new)

      def timeout_error = SocketArguments.timeout_error("#{SocketArguments.shown(@host)} port #{SocketArguments.shown(@service)}")
    end
  end
end

# frozen_string_literal: true

require "socket"

module Reactor
  # A connection to a host that may have many addresses: Happy Eyeballs (RFC 8305) in one fiber and one wait, as Ruby 3.4
  # and later have it in TCPSocket.new and Socket.tcp.
  #
  # The addresses of both families are one question, as for any other program: so a host that is in /etc/hosts with one of
  # them is not looked for in the DNS because of the other. If there is no answer within 250 ms, those of IPv4 are asked
  # for alone as well, because there are nameservers that never answer for IPv6; if these come first, the others have
  # 50 ms to follow.
  #
  # The addresses are tried in the order of getaddrinfo(3) (RFC 6724), but the families in turns, one every 250 ms as long
  # as nothing has been heard of those before, and at once when one has failed. The first that connects wins, the others
  # are closed.
  #
  # [connect_timeout]  seconds from the last attempt on, when there is no other address to try
  # [resolv_timeout]   seconds for the resolver, as long as it has not told of any address
  # [open_timeout]     seconds for everything (Ruby 4.0 and later)
  # @api private
  class HappyEyeballs
    ATTEMPT_DELAY = 0.25
    RESOLUTION_DELAY = 0.05
    # When a nameserver begins to look like one that does not answer for IPv6.
    DOUBT = 0.25
    BOTH = Socket::AF_UNSPEC
    # What Ruby's own Socket.tcp knows of.
    OPTIONS = Socket.method(:tcp).parameters.filter_map { |kind, name| name if kind == :key }.freeze
    private_constant :ATTEMPT_DELAY, :RESOLUTION_DELAY, :DOUBT, :BOTH, :OPTIONS

    class << self
      # Whether Ruby races by itself.
      def usual? = OPTIONS.include?(:fast_fallback) && !!Socket.tcp_fast_fallback

      # Whether Ruby takes these options, and takes them together.
      def options?(options)
        (options.keys - OPTIONS).empty? && !(options[:open_timeout] && (options[:connect_timeout] || options[:resolv_timeout]))
      end

      # @param racing [Boolean] whether several addresses are to be raced for
      # @return [HappyEyeballs, nil] nil: Ruby does it, and nothing of it holds up the thread; or refuses what it is given
      def of(kind, host, service, local_host, local_service, options, racing)
        scheduler = Resolving.scheduler
        return unless scheduler&.resolves? && options?(options) && Resolving.question(service)
        return unless kind.concerns?(Resolving.name_of(host), host, service, local_service, racing)

        kind.new(scheduler, host, service, [local_host, local_service], **options)
      end

      def concerns?(text, host, _service, _local_service, racing)
        racing && (text ? !Resolving.address?(text) : host.nil?)
      end
    end

    def initialize(scheduler, host, service, local, connect_timeout: nil, resolv_timeout: nil, open_timeout: nil, fast_fallback: nil)
      @scheduler = scheduler
      @host = host
      @service = service
      @local = local
      @connect_timeout = PortableScheduler.seconds(connect_timeout)
      @resolv_timeout = PortableScheduler.seconds(resolv_timeout)
      @open_timeout = PortableScheduler.seconds(open_timeout)
      @lookups = {}   # family => question to the resolver
      @found = []     # addresses not tried so far
      @tried = []     # those that were
      @attempts = {}  # socket => address it connects to
    end

    # @return [Socket] connected
    # @raise [SystemCallError, SocketError, IO::TimeoutError] as Ruby does
    def run
      ask
      loop do
        listen
        winner = attempt || finished
        return winner if winner

        check_time
        pause
      end
    ensure
      @lookups.each_value(&:cancel)
      @attempts.each_key(&:close)
    end

    private

    # --- addresses -------------------------------------------------------------------------------------------------

    def ask
      @resolve_by = now + @resolv_timeout if @resolv_timeout
      @open_by = now + @open_timeout if @open_timeout
      @locals = @local.any? ? Addrinfo.getaddrinfo(*@local, nil, :STREAM, timeout: @open_timeout || @resolv_timeout) : []
      families = @locals.map(&:afamily).uniq
      @single = families.one?
      question(@single ? families.first : BOTH)
      @doubt_at = now + DOUBT unless @single
    end

    def question(family)
      service, flags = Resolving.question(@service)
      host = @host && String.try_convert(@host)
      @lookups[family] = @scheduler.lookup(host, service, family, Socket::SOCK_STREAM, Socket::IPPROTO_TCP, flags)
    end

    # What the resolver has said meanwhile, and what it has not.
    def listen
      ended = @lookups.select { |_, lookup| lookup.ended? }
      ended.each do |family, lookup|
        next unless @lookups.delete(family) # the whole answer has come at the same time

        take(family, lookup.answer(asker).map { |address| Addrinfo.new(*address) })
      rescue SocketError, SystemCallError => error
        @error = error if family != Socket::AF_INET || @single
      end
      return unless past?(@doubt_at) && @lookups.key?(BOTH)

      @doubt_at = nil
      question(Socket::AF_INET)
    end

    def take(family, addresses)
      if family == BOTH
        @lookups.delete(Socket::AF_INET)&.cancel
        @resolution_until = nil
      elsif @lookups.key?(BOTH)
        @resolution_until = now + RESOLUTION_DELAY
      end
      @found = addresses.reject { |address| @tried.include?(address.ip_address) }
    end

    def addresses? = @found.any?

    # The next one, of the other family than the last.
    def next_address
      place = @found.index { |address| address.afamily != @last } || 0
      address = @found.delete_at(place) or return
      @last = address.afamily
      @tried << address.ip_address
      address
    end

    # --- attempts --------------------------------------------------------------------------------------------------

    # Begins one, if it is time to. A socket that is connected at once, or nil.
    def attempt
      return if past?(@resolution_until) == false || past?(@attempt_until) == false

      @resolution_until = @attempt_until = nil
      while (address = next_address)
        local = @locals.find { |candidate| candidate.afamily == address.afamily }
        if @locals.any? && !local
          @error = homeless
          next
        end
        socket = start(address, local) or next
        return socket unless @attempts.key?(socket)

        @attempt_until = now + ATTEMPT_DELAY
        @connect_by = now + @connect_timeout if @connect_timeout && !addresses?
        return
      end
    end

    # A socket that is connected, or among the attempts; nil if it failed.
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

    # The first attempt that has succeeded, if there is one; those that have failed are put away.
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

    # Whether this moment has come; nil if there is none.
    def past?(moment) = moment && now >= moment

    def check_time
      raise late if past?(@open_by)
      return if addresses?
      raise @error if @attempts.empty? && @lookups.empty?
      return unless @lookups.empty? || past?(@resolve_by)

      raise late if @attempts.empty? || past?(@connect_by)
    end

    def pause
      moments = [@open_by, (@doubt_at if @lookups.key?(BOTH))]
      moments << (@resolution_until || @attempt_until) if addresses?
      moments << latest unless addresses?
      moment = moments.compact.min
      left = moment && [moment - now, 0].max
      @scheduler.wait_any(@attempts.keys, [IO::WRITABLE] * @attempts.size, left, @lookups.values)
    end

    # When there is nothing to hope for any more; nil: never.
    def latest
      limits = []
      limits << @resolve_by if @lookups.any?
      limits << @connect_by if @attempts.any?
      limits.max unless limits.include?(nil)
    end

    # What Socket.tcp says.
    class Plain < HappyEyeballs
      private

      def asker = "getaddrinfo"

      def bind(socket, local) = socket.bind(local)

      def failure(_stage, error) = error

      def homeless = SocketError.new("no appropriate local address")

      def late = HappyEyeballs.late("#{@host}:#{@service}")
    end

    # What TCPSocket.new says.
    class Client < HappyEyeballs
      # Also what Ruby would ask the hook for, which knows no services and no zones.
      def self.concerns?(text, host, service, local_service, racing)
        return super unless text && Resolving.address?(text)

        !(Resolving.bare?(text) && Resolving.port?(service) && Resolving.port?(local_service))
      end

      private

      def asker = @single ? "getaddrinfo" : "getaddrinfo(3)"

      def bind(socket, local)
        socket.setsockopt(Socket::SOL_SOCKET, Socket::SO_REUSEADDR, 1)
        socket.bind(local)
      end

      def failure(stage, error)
        host, service = stage == "bind(2)" ? @local : [@host, @service]
        SystemCallError.new("#{stage} for #{host.inspect} port #{service}", error.errno)
      end

      def homeless = failure("bind(2)", Errno::EAFNOSUPPORT.new)

      def late = HappyEyeballs.late("#{@host} port #{@service}")
    end

    # Ruby 4.0, which has an open_timeout, also has an error for time that is over.
    def self.late(whom)
      return IO::TimeoutError.new("user specified timeout for #{whom}") if OPTIONS.include?(:open_timeout)

      Errno::ETIMEDOUT.new("user specified timeout")
    end
  end
end

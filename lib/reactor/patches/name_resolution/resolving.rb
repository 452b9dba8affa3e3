# frozen_string_literal: true

require_relative "../../scheduler/addresses"
require_relative "../../connect/happy_eyeballs"

module Reactor
  # Puts itself before the methods of Ruby's that resolve names, from the first {Scheduler} on. Where the current fiber has
  # none of our schedulers they do what they did; so they do with addresses, which need no resolver.
  #
  # * A host is resolved, with its service, family and flags, before Ruby sees it, and handed on as a {AddressResolution::Known} and a
  #   {AddressResolution::Service}: what is made of it, and what the errors say, is Ruby's own.
  # * What is answered without the network (the service of an address, a zone) is asked on the spot.
  # * What only Ruby can find out (a canonical name, the name of an address, a list of addresses for a named service, an
  #   answer with a zone) it finds out on a thread of {Lifecycle#offload}.
  # * `TCPSocket.new` and `Socket.tcp` with the Happy Eyeballs of Ruby 3.4 and later would hold up the thread, or start two
  #   threads each. Here they are a {HappyEyeballs} of their own. The socket is a true one of its class, subclasses included:
  #   `initialize` does it all, so it may be overridden and called by super, and `open` takes a block.
  #
  # A subclass of the scheduler with an `address_resolve` of its own is asked by Ruby as ever; TCPSocket.new then does
  # without Happy Eyeballs, which would not ask it. And what somebody else has replaced by Ruby code before the first
  # scheduler (resolv-replace does so) is left alone.
  module Resolving
    # What is most likely an address that Ruby parses by itself, and what may be any.
    PLAIN = /\A(?:\d{1,3}(?:\.\d{1,3}){3}|[\h:]*:[\h:.]*)\z/
    LITERAL = /\A(?:[\d.]+|[\h:.]*:[\h:.]*(?:%.+)?)\z/
    PORT = /\A\d{1,5}\z/
    # Hosts that stand for an address; and the longest there may be, NI_MAXHOST less the end.
    SPECIAL = ["", "<any>", "<broadcast>"].freeze
    LONGEST = 1024
    # The kinds of sockets that Ruby itself makes of an address; 0: each of them.
    USUAL = [0, Socket::SOCK_STREAM, Socket::SOCK_DGRAM, Socket::SOCK_RAW].freeze
    private_constant :PLAIN, :LITERAL, :PORT, :SPECIAL, :LONGEST, :USUAL

    class << self
      # @api private
      def install
        PLACES.each do |place, methods|
          place.prepend(methods) unless place.include?(methods) || replaced?(place, methods)
        end
      end

      # The current fiber's scheduler, if it is ours.
      #
      # @return [Lifecycle, nil]
      def scheduler
        scheduler = Fiber.current_scheduler
        scheduler if scheduler.is_a?(AddressResolution) && !scheduler.inert?
      end

      # Whether it has one that is another process's: what then waits has to wait as without any.
      def orphaned?
        scheduler = Fiber.current_scheduler
        scheduler.is_a?(AddressResolution) && scheduler.inert?
      end

      # A host that is a name or an address; nil for everything else, which Ruby deals with by itself.
      #
      # @return [String, nil]
      def name_of(host)
        text = String.try_convert(host)
        text unless text.nil? || SPECIAL.include?(text) || text.bytesize > LONGEST || text.include?("\0")
      end

      # Whether it is an address, perhaps with a zone.
      def address?(text)
        text.match?(LITERAL) && !!Addrinfo.getaddrinfo(text, nil, nil, :STREAM, nil, Socket::AI_NUMERICHOST)
      rescue SocketError
        false
      end

      # Whether Ruby parses this address, or this service, by itself.
      def bare?(address) = !address.include?("%")

      def port?(service)
        case service
        when nil then true
        when Integer then service.between?(0, 0xffff)
        else service.is_a?(String) && service.match?(PORT) && service.to_i <= 0xffff
        end
      end

      # Whether there is nothing for us to do: a glance, which costs nothing to speak of.
      def idle?(host, service)
        Fiber.current_scheduler.nil? || (host.is_a?(String) && host.match?(PLAIN) && port?(service))
      end

      # A constant of Socket by its number, or by its name with or without this prefix; nil if there is none such.
      def number(prefix, value)
        case value
        when nil then 0
        when Integer then value
        when String, Symbol
          name = [value.to_s, "#{prefix}#{value}"].find { |known| known.match?(/\A[A-Z]/) && Socket.const_defined?(known) }
          name && Socket.const_get(name)
        end
      end

      # The service as getaddrinfo(3) takes it, and the flags that go with it.
      #
      # @return [Array(String, Integer), nil] nil: it is none, and Ruby will say so
      def question(service, flags = 0)
        case service
        when nil then [nil, flags]
        when Integer then [service.to_s, flags | Socket::AI_NUMERICSERV]
        else (text = String.try_convert(service)) && !text.include?("\0") ? [text, flags] : nil
        end
      end

      # Resolves what there is to resolve, and has Ruby do the rest.
      #
      # @param exact [Boolean] whether the result shows the service as it was given, or all that goes with it
      # @param limit [Numeric, nil] seconds
      # @yieldparam host instead of the one given
      # @yieldparam service instead of the one given
      def prepare(host, service, family: 0, socktype: 0, protocol: 0, flags: 0, exact: false, limit: nil)
        scheduler = self.scheduler
        text = name_of(host) if scheduler&.resolves? && [family, socktype, protocol, flags].all?(Integer)
        return yield(host, service) unless text && flags.nobits?(Socket::AI_NUMERICHOST)

        plain = port?(service)
        usual = USUAL.include?(socktype)
        if address?(text)
          return yield(host, service) if plain && usual && bare?(text) && (family.zero? || (family == Socket::AF_INET6) == text.include?(":"))

          return Fiber.blocking { yield(host, service) }
        end
        asked, flags = question(service, flags)
        return yield(host, service) unless asked || service.nil?

        unless !usual || (exact && !plain) || flags.anybits?(Socket::AI_CANONNAME)
          # Ruby has an error of its own for this one.
          found = text.end_with?("\n") ? [] : scheduler.resolve(text, asked, family, socktype, protocol, flags, limit: limit)
        end
        return scheduler.offload { yield(host, service) } if found.nil? || found.any? { |address| !bare?(address.ip_address) }

        service = AddressResolution::Service.new(service, found.first.ip_port) unless plain || found.empty?
        yield(AddressResolution::Known.new(text, found.map(&:ip_address).uniq), service)
      end

      # Has a worker of the scheduler's run what may wait for the name of an address.
      def elsewhere(wanted = true, &)
        scheduler = self.scheduler if wanted
        scheduler ? scheduler.offload(&) : yield
      end

      # An address of the wrong family: Ruby would ask the hook for others. Without it, it says what is wrong.
      def again
        yield
      rescue Socket::ResolutionError
        raise unless scheduler

        Fiber.blocking { yield }
      end

      # {#prepare} for this UDPSocket.
      def datagram(socket, host, service, &)
        prepare(host, service, family: scheduler ? socket.local_address.afamily : 0, socktype: Socket::SOCK_DGRAM, &)
      end

      private

      # Whether somebody else's code has taken the place of Ruby's own.
      def replaced?(place, methods)
        names = methods.instance_methods(false) + methods.private_instance_methods(false)
        names.any? do |name|
          file, = place.instance_method(name).source_location if place.method_defined?(name) || place.private_method_defined?(name)
          file && !file.start_with?("<internal:") && File.basename(file) != "socket.rb"
        end
      end
    end

    # Addrinfo.getaddrinfo and what is made of it.
    module Lists
      def getaddrinfo(*arguments, **options)
        host, service, *rest = arguments
        family, socktype, protocol, flags = rest
        numbers = { family: Resolving.number("AF_", family), socktype: Resolving.number("SOCK_", socktype), protocol: protocol || 0, flags: flags || 0 }
        return super unless arguments.size.between?(2, 6)

        Resolving.prepare(host, service, **numbers, exact: true, limit: options[:timeout]) { |known, port| super(known, port, *rest, **options) }
      end

      def tcp(host, port)
        Resolving.prepare(host, port, socktype: Socket::SOCK_STREAM, protocol: Socket::IPPROTO_TCP, exact: true) { |known, number| super(known, number) }
      end

      def udp(host, port)
        Resolving.prepare(host, port, socktype: Socket::SOCK_DGRAM, protocol: Socket::IPPROTO_UDP, exact: true) { |known, number| super(known, number) }
      end

      def ip(host) = Resolving.prepare(host, nil) { |known, _| super(known) }
    end

    # Addrinfo#getnameinfo
    module Reverse
      def getnameinfo(flags = 0) = Resolving.elsewhere(flags.is_a?(Integer) && flags.nobits?(Socket::NI_NUMERICHOST)) { super }
    end

    # Socket.getaddrinfo and its neighbours.
    module Addresses
      def getaddrinfo(*arguments)
        host, service, *rest = arguments
        return super unless arguments.size.between?(2, 7)

        family, socktype, protocol, flags, reverse = rest
        reverse = !BasicSocket.do_not_reverse_lookup if reverse.nil?
        return Resolving.elsewhere { super } if reverse && reverse != :numeric

        numbers = { family: Resolving.number("AF_", family), socktype: Resolving.number("SOCK_", socktype), protocol: protocol || 0, flags: flags || 0 }
        Resolving.prepare(host, service, **numbers, exact: numbers[:socktype]&.zero?) { |known, port| super(known, port, *rest) }
      end

      def sockaddr_in(port, host) = Resolving.prepare(host, port) { |known, number| super(number, known) }

      def pack_sockaddr_in(port, host) = Resolving.prepare(host, port) { |known, number| super(number, known) }

      def getnameinfo(address, flags = 0) = Resolving.elsewhere(flags.is_a?(Integer) && flags.nobits?(Socket::NI_NUMERICHOST)) { super }

      def gethostbyname(host) = Resolving.elsewhere { super }

      def tcp(host, port, local_host = nil, local_port = nil, **options, &block)
        racing = options.fetch(:fast_fallback) { HappyEyeballs.usual? }
        race = HappyEyeballs.of(HappyEyeballs::Plain, host, port, local_host, local_port, options, racing)
        return Resolving.orphaned? ? Fiber.blocking { super } : super unless race

        socket = race.run
        return socket unless block

        begin
          yield socket
        ensure
          socket.close
        end
      end
    end

    # TCPSocket.gethostbyname
    module Hosts
      def gethostbyname(host) = Resolving.elsewhere { super }
    end

    # IPSocket.getaddress
    module Getaddress
      def getaddress(host) = Resolving.prepare(host, nil, socktype: Socket::SOCK_STREAM) { |known, _| super(known) }
    end

    # IPSocket#addr and #peeraddr, which may be asked for names.
    module Ends
      def addr(reverse = nil) = Resolving.elsewhere(reverse.nil? ? !do_not_reverse_lookup : reverse && reverse != :numeric) { super }

      def peeraddr(reverse = nil) = Resolving.elsewhere(reverse.nil? ? !do_not_reverse_lookup : reverse && reverse != :numeric) { super }
    end

    # TCPServer.new
    module Server
      def initialize(*arguments)
        return super unless arguments.size == 2

        Resolving.prepare(*arguments, socktype: Socket::SOCK_STREAM, flags: Socket::AI_PASSIVE) { |known, port| super(known, port) }
      end
    end

    # UDPSocket#connect, #bind and #send.
    module Datagrams
      def connect(host, port)
        return Resolving.again { super } if Resolving.idle?(host, port)

        Resolving.datagram(self, host, port) { |known, number| super(known, number) }
      end

      def bind(host, port)
        return Resolving.again { super } if Resolving.idle?(host, port)

        Resolving.datagram(self, host, port) { |known, number| super(known, number) }
      end

      def send(message, flags, *rest)
        return super if rest.size != 2
        return Resolving.again { super } if Resolving.idle?(*rest)

        Resolving.datagram(self, *rest) { |known, number| super(message, flags, known, number) }
      end
    end

    # TCPSocket.new
    module Client
      def initialize(host, service, local_host = nil, local_service = nil, **options)
        return super if (Resolving.idle?(host, service) && Resolving.port?(local_service)) || !HappyEyeballs.options?(options)

        racing = options.fetch(:fast_fallback, nil)
        racing = HappyEyeballs.usual? if racing.nil?
        race = HappyEyeballs.of(HappyEyeballs::Client, host, service, local_host, local_service, options, racing)
        return adopt(race.run) if race

        scheduler = Resolving.scheduler
        options = { **options, fast_fallback: false } if scheduler && !scheduler.resolves? && racing
        Resolving.prepare(host, service, socktype: Socket::SOCK_STREAM) { |known, port| super(known, port, local_host, local_service, **options) }
      end

      private

      # Makes this object what Ruby would have made of it: the socket of that descriptor.
      def adopt(socket)
        IO.instance_method(:initialize).bind_call(self, socket.fileno, "r+b")
        socket.autoclose = false
        self.sync = true
        self.do_not_reverse_lookup = BasicSocket.do_not_reverse_lookup
      end
    end

    PLACES = {
      Addrinfo.singleton_class => Lists, Addrinfo => Reverse, Socket.singleton_class => Addresses, IPSocket.singleton_class => Getaddress,
      TCPSocket.singleton_class => Hosts, IPSocket => Ends, TCPServer => Server, UDPSocket => Datagrams, TCPSocket => Client
    }.freeze
    private_constant :PLACES
  end
end

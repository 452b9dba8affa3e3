# frozen_string_literal: true

require "socket"

module Reactor
  # How a scheduler resolves names: getaddrinfo(3), with all that this means on the machine (nsswitch.conf, /etc/hosts,
  # the order of RFC 6724), on threads of the core's pool, several at once, while the fiber is parked. One that is
  # interrupted leaves the question to end by itself.
  #
  # Ruby asks a scheduler for addresses of a host by {#address_resolve}, and makes everything else of them: that hook
  # hears nothing of services, families, flags and zones, and Ruby 3.4's TCPSocket.new does not even call it. So the
  # methods of Ruby's that take a host and a service are prepared by {Resolving}, which asks the whole question; the hook
  # is for what is left.
  module AddressResolution
    # A host whose addresses are known: it looks like the one that was given, and {#address_resolve} knows the answer.
    class Known < String
      # @return [Array<String>]
      attr_reader :addresses

      def initialize(host, addresses)
        super(host)
        @addresses = addresses
      end
    end

    # A service whose number is known: the number for who asks the resolver, what was given for who reads an error message.
    class Service
      def initialize(given, number)
        @given = given
        @number = number.to_s
      end

      def to_str = @number

      def to_s = @given.to_s
    end

    # The hook for a host that is no address. Ruby takes numeric addresses of the host from it, without zones.
    #
    # @param hostname [String]
    # @return [Array<String>] in the order of getaddrinfo(3)
    # @raise [Socket::ResolutionError] with getaddrinfo's own code (EAI_*)
    # @raise [SystemCallError] for EAI_SYSTEM
    def address_resolve(hostname)
      return hostname.addresses if hostname.is_a?(Known)

      found =
        if inert?
          Fiber.blocking { Addrinfo.getaddrinfo(hostname, nil, nil, :STREAM) }
        else
          resolve(hostname, nil, Socket::AF_UNSPEC, Socket::SOCK_STREAM)
        end
      found.map(&:ip_address)
    end

    # getaddrinfo(3), its arguments being numbers; the fiber is parked meanwhile.
    #
    # @param host [String, nil]
    # @param service [String, nil]
    # @param limit [Numeric, nil] seconds
    # @return [Array<Addrinfo>] without the names that were asked for
    # @raise as {#address_resolve}; when the time is over, what TCPSocket.new raises then
    # @api private
    def resolve(host, service, family, socktype, protocol = 0, flags = 0, limit: nil)
      question = lookup(host, service, family, socktype, protocol, flags)
      deadline = now + PortableScheduler.seconds(limit) if limit
      until question.ended?
        left = deadline && [deadline - now, 0].max
        raise HappyEyeballs.late("#{host} port #{service}") if left&.zero?

        wait_any([], [], left, [question])
      end
      question.answer("getaddrinfo").map { |address| Addrinfo.new(*address) }
    ensure
      question&.cancel
    end

    # Whether Ruby would get its addresses from us, and not from a subclass that has its own.
    #
    # @api private
    def resolves? = !inert? && method(:address_resolve).owner.equal?(AddressResolution)
  end
end

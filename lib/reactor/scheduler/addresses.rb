# frozen_string_literal: true

module Reactor
  # How a scheduler resolves names: by getaddrinfo(3), with the machine's nsswitch.conf, /etc/hosts and order of RFC 6724, on
  # threads of the core's pool, several at a time, while the fiber is parked. If the fiber is interrupted, the lookup ends by
  # itself.
  #
  # Ruby asks a scheduler only for the addresses of a host, by {#address_resolve}, and makes everything else of them. That hook
  # is given no service, family, flags or zone, and Ruby 3.4's TCPSocket.new does not call it. So Ruby's methods that take a
  # host and a service are patched ({Patches::NameResolution}). The hook remains for every other caller.
  module AddressResolution
    # The hook for a host that is not an address. Ruby takes numeric addresses from it, without zones.
    #
    # @param hostname [String]
    # @return [Array<String>] in the order of getaddrinfo(3)
    # @raise [Socket::ResolutionError] with getaddrinfo's own code (EAI_*)
    # @raise [SystemCallError] for EAI_SYSTEM
    def address_resolve(hostname)
      return Fiber.blocking { Addrinfo.getaddrinfo(hostname, nil, nil, :STREAM) }.map(&:ip_address) if forked_child?

      unless hostname.nil? || String.try_convert(hostname)
        raise TypeError, "no implicit conversion of #{hostname.class} into String"
      end

      lookup = lookup(hostname, nil, Socket::AF_UNSPEC, Socket::SOCK_STREAM, 0, 0)
      wait_any([], [], nil, [lookup]) until lookup.ended?
      lookup.answer("getaddrinfo").map { |address| Addrinfo.new(*address).ip_address }
    ensure
      lookup&.cancel
    end

    # @return [Boolean] whether Ruby gets its addresses from this module, and not from a subclass's own hook
    # @api private
    def resolves? = !forked_child? && method(:address_resolve).owner.equal?(AddressResolution)
  end
end

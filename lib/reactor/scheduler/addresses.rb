# frozen_string_literal: true

module Reactor
  # Resolves names by getaddrinfo(3), so the machine's nsswitch.conf, /etc/hosts and RFC 6724 order apply. Lookups run on threads
  # of the core's pool, several at a time, while their fibers are parked. When a fiber is interrupted, its lookup is left to
  # finish unattended.
  #
  # Ruby asks a scheduler only for the addresses of a host, by {#address_resolve}, and derives everything else from them. But Ruby
  # passes the hook no service, family, flags or zone, and Ruby 3.4's TCPSocket.new does not call the hook. So the methods of Ruby
  # that take a host and a service are patched ({Patches::NameResolution}), and the hook serves all other callers.
  module AddressResolution
    # The hook for hosts that are not addresses. Ruby expects numeric addresses without zones.
    #
    # @param hostname [String]
    # @return [Array<String>] in the order of getaddrinfo(3)
    # @raise [Socket::ResolutionError] with getaddrinfo's own code (EAI_*)
    # @raise [SystemCallError] for EAI_SYSTEM
    def address_resolve(hostname)
      unless hostname.nil? || String.try_convert(hostname)
        raise TypeError, "no implicit conversion of #{hostname.class} into String"
      end

      lookup = lookup(hostname, nil, Socket::AF_UNSPEC, Socket::SOCK_STREAM, 0, 0)
      wait_any([], [], nil, [lookup]) until lookup.ended?
      lookup.answer("getaddrinfo").map { |address| Addrinfo.new(*address).ip_address }
    ensure
      lookup&.cancel
    end

    # @return [Boolean] whether this module resolves Ruby's names, as opposed to a subclass's own hook
    # @api private
    def resolves? = method(:address_resolve).owner.equal?(AddressResolution)
  end
end

# frozen_string_literal: true

require_relative "../../socket_arguments"
require_relative "../name_resolution"

module Reactor
  module Patches
    module NameResolution
      # Prepended to Addrinfo's singleton class.
      module AddrinfoLookup
        # @return [Boolean] whether the program has replaced Addrinfo.getaddrinfo, which Ruby's own Socket.tcp calls
        def self.replaced?
          method = Addrinfo.method(:getaddrinfo)
          method = method.super_method if method.owner.equal?(self)
          !method.source_location.nil?
        end

        def getaddrinfo(*arguments, **options)
          return super if Fiber.current_scheduler && AddrinfoLookup.replaced?

          host, service, *rest = arguments
          family, socktype, protocol, flags = rest
          numbers = { family: SocketArguments.constant("AF_", family), socktype: SocketArguments.constant("SOCK_", socktype),
                      protocol: protocol || 0, flags: flags || 0 }
          return super unless arguments.size.between?(2, 6)

          NameResolution.resolve(host, service, **numbers, exact: true, limit: options[:timeout]) { |known, port| super(known, port, *rest, **options) }
        end

        def tcp(host, port)
          NameResolution.resolve(host, port, socktype: Socket::SOCK_STREAM, protocol: Socket::IPPROTO_TCP, exact: true) { |known, number| super(known, number) }
        end

        def udp(host, port)
          NameResolution.resolve(host, port, socktype: Socket::SOCK_DGRAM, protocol: Socket::IPPROTO_UDP, exact: true) { |known, number| super(known, number) }
        end

        def ip(host) = NameResolution.resolve(host, nil) { |known, _| super(known) }
      end

      # Prepended to Addrinfo.
      module AddrinfoReverse
        def getnameinfo(flags = 0) = NameResolution.on_worker(Integer === flags && flags.nobits?(Socket::NI_NUMERICHOST)) { super }
      end
    end
  end
end

# frozen_string_literal: true

require_relative "../name_resolution"

module Reactor
  module Patches
    module NameResolution
      # Prepended to UDPSocket.
      module UDPSocketAddress
        def connect(host, port) = UDPSocketAddress.resolve(host, port) { super }

        def bind(host, port) = UDPSocketAddress.resolve(host, port) { super }

        def send(message, flags, *rest) = rest.size == 2 ? UDPSocketAddress.resolve(*rest) { super } : super

        # For an address of the wrong family Ruby asks the hook for other addresses. Without the hook it reports the error.
        def self.resolve(host, port, &)
          return NameResolution.on_thread(&) unless NameResolution.nothing_to_resolve?(host, port)

          begin
            yield
          rescue Socket::ResolutionError
            Schedulers.current ? Fiber.blocking(&) : raise
          end
        end
      end
    end
  end
end

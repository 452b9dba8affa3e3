# frozen_string_literal: true

require_relative "../../socket_arguments"
require_relative "../name_resolution"

module Reactor
  module Patches
    module NameResolution
      # Prepended to UDPSocket.
      module UDPSocketAddress
        def connect(host, port)
          return NameResolution.retry_without_hook { super } if NameResolution.nothing_to_resolve?(host, port)

          NameResolution.resolve_for_udp(self, host, port) { |known, number| super(known, number) }
        end

        def bind(host, port)
          return NameResolution.retry_without_hook { super } if NameResolution.nothing_to_resolve?(host, port)

          NameResolution.resolve_for_udp(self, host, port) { |known, number| super(known, number) }
        end

        def send(message, flags, *rest)
          return super if rest.size != 2
          return NameResolution.retry_without_hook { super } if NameResolution.nothing_to_resolve?(*rest)

          NameResolution.resolve_for_udp(self, *rest) { |known, number| super(message, flags, known, number) }
        end
      end
    end
  end
end

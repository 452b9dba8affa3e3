# frozen_string_literal: true

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

        def getaddrinfo(*arguments, **options) = AddrinfoLookup.replaced? ? super : NameResolution.resolve(*arguments.first(2)) { super }

        def tcp(host, port) = NameResolution.resolve(host, port) { super }

        def udp(host, port) = NameResolution.resolve(host, port) { super }

        def ip(host) = NameResolution.resolve(host) { super }
      end

      # Prepended to Addrinfo.
      module AddrinfoReverse
        def getnameinfo(flags = 0) = NameResolution.on_thread(NameResolution.name?(flags)) { super }
      end
    end
  end
end

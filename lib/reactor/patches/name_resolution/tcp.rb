# frozen_string_literal: true

require_relative "../../connect/happy_eyeballs"
require_relative "../../socket_arguments"
require_relative "../name_resolution"

module Reactor
  module Patches
    module NameResolution
      # Prepended to TCPSocket's singleton class.
      module TCPSocketLookup
        def gethostbyname(host) = NameResolution.on_thread { super }
      end

      # Prepended to TCPSocket. The socket is of the class that was asked for, subclasses included: `initialize` does all the
      # work, so a subclass may override it and call super, and `open` takes a block.
      module TCPSocketConnect
        def initialize(host, service, local_host = nil, local_service = nil, **options)
          return super if (NameResolution.nothing_to_resolve?(host, service) && SocketArguments.port?(local_service)) || !HappyEyeballs.options?(options)

          parallel = options[:fast_fallback]
          parallel = HappyEyeballs.ruby_default? if parallel.nil?
          connection = HappyEyeballs::ForTCPSocket.for(host, service, local_host, local_service, options, parallel)
          return TCPSocketConnect.assign(self, connection.run) if connection

          scheduler = Schedulers.current
          options = { **options, fast_fallback: false } if scheduler && !scheduler.resolves? && parallel
          NameResolution.on_thread { super(host, service, local_host, local_service, **options) }
        end

        # Makes this object what Ruby would have made of it: the socket of that descriptor.
        def self.assign(tcp_socket, connected)
          IO.instance_method(:initialize).bind_call(tcp_socket, connected.fileno, "r+b")
          connected.autoclose = false
          tcp_socket.sync = true
          tcp_socket.do_not_reverse_lookup = BasicSocket.do_not_reverse_lookup
        end
      end

      # Prepended to TCPServer.
      module TCPServerBind
        def initialize(*arguments) = arguments.size == 2 ? NameResolution.resolve(*arguments) { super } : super
      end
    end
  end
end

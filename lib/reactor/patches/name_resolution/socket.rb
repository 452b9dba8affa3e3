# frozen_string_literal: true

require_relative "../../connect/happy_eyeballs"
require_relative "../../socket_arguments"
require_relative "../name_resolution"
require_relative "addrinfo"

module Reactor
  module Patches
    module NameResolution
      # Prepended to Socket's singleton class.
      module SocketLookup
        def getaddrinfo(*arguments)
          host, service, *, reverse = arguments.values_at(0..6)
          reverse = !BasicSocket.do_not_reverse_lookup if reverse.nil?
          return NameResolution.on_thread { super } if reverse && :numeric != reverse

          NameResolution.resolve(host, service) { super }
        end

        def sockaddr_in(port, host) = NameResolution.resolve(host, port) { super }

        def pack_sockaddr_in(port, host) = NameResolution.resolve(host, port) { super }

        def getnameinfo(address, flags = 0) = NameResolution.on_thread(NameResolution.name?(flags)) { super }

        def gethostbyname(host) = NameResolution.on_thread { super }

        def tcp(host, port, local_host = nil, local_port = nil, **options, &block)
          parallel = options.fetch(:fast_fallback) { HappyEyeballs.ruby_default? }
          own = parallel && (Fiber.current_scheduler.nil? || !AddrinfoLookup.replaced?)
          connection = HappyEyeballs.for(host, port, local_host, local_port, options, parallel) if own
          return Schedulers.forked_child? ? Fiber.blocking { super } : super unless connection

          socket = connection.run
          return socket unless block

          begin
            yield socket
          ensure
            socket.close
          end
        end
      end

      # Prepended to IPSocket's singleton class.
      module IPSocketLookup
        def getaddress(host) = NameResolution.resolve(host) { super }
      end

      # Prepended to IPSocket: its methods may be asked for names.
      module IPSocketReverse
        def addr(reverse = nil) = NameResolution.on_thread(reverse.nil? ? !do_not_reverse_lookup : reverse && :numeric != reverse) { super }

        def peeraddr(reverse = nil) = NameResolution.on_thread(reverse.nil? ? !do_not_reverse_lookup : reverse && :numeric != reverse) { super }
      end
    end
  end
end

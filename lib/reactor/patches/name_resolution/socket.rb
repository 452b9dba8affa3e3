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
          host, service, *rest = arguments
          return super unless arguments.size.between?(2, 7)

          family, socktype, protocol, flags, reverse = rest
          reverse = !BasicSocket.do_not_reverse_lookup if nil.equal?(reverse)
          return NameResolution.on_worker { super } if reverse && :numeric != reverse

          numbers = { family: SocketArguments.constant("AF_", family), socktype: SocketArguments.constant("SOCK_", socktype),
                      protocol: protocol || 0, flags: flags || 0 }
          NameResolution.resolve(host, service, **numbers, exact: numbers[:socktype]&.zero?) { |known, port| super(known, port, *rest) }
        end

        def sockaddr_in(port, host) = NameResolution.resolve(host, port) { |known, number| super(number, known) }

        def pack_sockaddr_in(port, host) = NameResolution.resolve(host, port) { |known, number| super(number, known) }

        def getnameinfo(address, flags = 0) = NameResolution.on_worker(Integer === flags && flags.nobits?(Socket::NI_NUMERICHOST)) { super }

        def gethostbyname(host) = NameResolution.on_worker { super }

        def tcp(host, port, local_host = nil, local_port = nil, **options, &block)
          parallel = options.fetch(:fast_fallback) { HappyEyeballs.ruby_default? }
          own = Fiber.current_scheduler.nil? || !AddrinfoLookup.replaced?
          connection = HappyEyeballs.for(HappyEyeballs::ForSocketTCP, host, port, local_host, local_port, options, parallel) if own
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
        def getaddress(host) = NameResolution.resolve(host, nil, socktype: Socket::SOCK_STREAM) { |known, _| super(known) }
      end

      # Prepended to IPSocket: its methods may be asked for names.
      module IPSocketReverse
        def addr(reverse = nil) = NameResolution.on_worker(nil.equal?(reverse) ? !do_not_reverse_lookup : reverse && :numeric != reverse) { super }

        def peeraddr(reverse = nil) = NameResolution.on_worker(nil.equal?(reverse) ? !do_not_reverse_lookup : reverse && :numeric != reverse) { super }
      end
    end
  end
end

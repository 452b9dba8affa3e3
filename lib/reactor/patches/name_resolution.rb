# frozen_string_literal: true

require_relative "../connect/happy_eyeballs"

module Reactor
  module Patches
    # Shared by the patches of Ruby's name-resolving methods. Each does what Ruby does if the current fiber has no scheduler of
    # this library, or if the method is given an address, which needs no resolver.
    #
    # * A thread of its own calls the method, so results and errors are Ruby's.
    # * TCPSocket.new and Socket.tcp need no thread per call: {HappyEyeballs} connects in the calling fiber.
    #
    # If a subclass of the scheduler overrides `address_resolve`, Ruby calls the override as usual. TCPSocket.new then does not
    # use Happy Eyeballs, because that would bypass the override.
    #
    # @api private
    module NameResolution
      class << self
        # @return [Boolean] whether there is certainly nothing to resolve; a cheap check
        def nothing_to_resolve?(host, service)
          Fiber.current_scheduler.nil? || (SocketArguments.plain_address?(host) && SocketArguments.port?(service))
        end

        # @return [Boolean] whether Ruby itself connects: it has nothing to resolve, and does not block the thread, as connect(2) does
        #   on Windows
        def connects?(host, service, local_service)
          nothing_to_resolve?(host, service) && SocketArguments.port?(local_service) && !VM::WINDOWS
        end

        # Runs the block, which calls Ruby's method and waits for nothing but the resolver.
        #
        # @param host [Object] as the program gave it
        # @param service [Object] as the program gave it
        def resolve(host = nil, service = nil, &)
          return yield unless Schedulers.current&.resolves?

          host.nil? || nothing_to_resolve?(host, service) ? Fiber.blocking(&) : on_thread(&)
        end

        # Runs the block on a thread if it may wait for a nameserver. Virtual time stands still meanwhile.
        #
        # @param waits [Boolean] whether the block may wait
        def on_thread(waits = true, &)
          scheduler = Schedulers.current if waits
          return yield unless scheduler&.resolves?
          return Fiber.blocking { yield } unless scheduler.may_wait_for_threads?

          VirtualTime.hold { scheduler.run_on_own_thread(-> { Fiber.blocking(&) }, &) }
        end

        # @param flags [Integer] of getnameinfo(3)
        # @return [Boolean] whether the flags request the name of a host
        def name?(flags) = Integer === flags && flags.nobits?(Socket::NI_NUMERICHOST)
      end

      # Of Addrinfo's singleton class.
      module AddrinfoLookup
        # @return [Boolean] whether the program has replaced Addrinfo.getaddrinfo, which Ruby's own Socket.tcp calls
        def self.replaced?
          file, = Addrinfo.method(:getaddrinfo).source_location
          file && file != __FILE__
        end

        def getaddrinfo(*arguments, **options)
          NameResolution.resolve(*arguments.first(2)) { reactor_addrinfo_getaddrinfo(*arguments, **options) }
        end

        def tcp(host, port) = NameResolution.resolve(host, port) { reactor_addrinfo_tcp(host, port) }

        def udp(host, port) = NameResolution.resolve(host, port) { reactor_addrinfo_udp(host, port) }

        def ip(host) = NameResolution.resolve(host) { reactor_addrinfo_ip(host) }
      end

      # Of Addrinfo.
      module AddrinfoReverse
        def getnameinfo(flags = 0) = NameResolution.on_thread(NameResolution.name?(flags)) { reactor_addrinfo_getnameinfo(flags) }
      end

      # Of Socket's singleton class.
      module SocketLookup
        def getaddrinfo(*arguments)
          host, service, *, reverse = arguments.values_at(0..6)
          reverse = !BasicSocket.do_not_reverse_lookup if reverse.nil?
          look_up = proc { reactor_socket_getaddrinfo(*arguments) }
          return NameResolution.on_thread(&look_up) if reverse && :numeric != reverse

          NameResolution.resolve(host, service, &look_up)
        end

        def sockaddr_in(port, host) = NameResolution.resolve(host, port) { reactor_socket_sockaddr_in(port, host) }

        def pack_sockaddr_in(port, host) = NameResolution.resolve(host, port) { reactor_socket_pack_sockaddr_in(port, host) }

        def getnameinfo(address, flags = 0)
          NameResolution.on_thread(NameResolution.name?(flags)) { reactor_socket_getnameinfo(address, flags) }
        end

        def tcp(host, port, local_host = nil, local_port = nil, **options, &block)
          parallel = options.fetch(:fast_fallback) { HappyEyeballs.ruby_default? }
          own = parallel && !NameResolution.connects?(host, port, local_port) && !AddrinfoLookup.replaced?
          connection = HappyEyeballs.for(host, port, local_host, local_port, options, parallel) if own
          return reactor_socket_tcp(host, port, local_host, local_port, **options, &block) unless connection

          socket = connection.run
          return socket unless block

          begin
            yield socket
          ensure
            socket.close
          end
        end
      end

      # Of IPSocket's singleton class.
      module IPSocketLookup
        def getaddress(host) = NameResolution.resolve(host) { reactor_ipsocket_getaddress(host) }
      end

      # Of IPSocket: its methods may look up host names.
      module IPSocketReverse
        def addr(reverse = nil) = NameResolution.on_thread(IPSocketReverse.name?(self, reverse)) { reactor_ipsocket_addr(reverse) }

        def peeraddr(reverse = nil) = NameResolution.on_thread(IPSocketReverse.name?(self, reverse)) { reactor_ipsocket_peeraddr(reverse) }

        def self.name?(socket, reverse) = reverse.nil? ? !socket.do_not_reverse_lookup : reverse && :numeric != reverse
      end

      # Of TCPSocket. Sockets have the class that was asked for, even a subclass: `initialize` does all the work, so a
      # subclass may override it and call super, and `open` takes a block.
      module TCPSocketConnect
        def initialize(host, service, local_host = nil, local_service = nil, **options)
          if NameResolution.connects?(host, service, local_service) || !HappyEyeballs.options?(options)
            return reactor_tcpsocket_initialize(host, service, local_host, local_service, **options)
          end

          parallel = options[:fast_fallback]
          parallel = HappyEyeballs.ruby_default? if parallel.nil?
          connection = HappyEyeballs::ForTCPSocket.for(host, service, local_host, local_service, options, parallel)
          return TCPSocketConnect.assign(self, connection.run) if connection

          scheduler = Schedulers.current
          options = { **options, fast_fallback: false } if scheduler && !scheduler.resolves? && parallel
          NameResolution.on_thread { reactor_tcpsocket_initialize(host, service, local_host, local_service, **options) }
        end

        # Turns this object into what Ruby would have made: a socket for the connected descriptor.
        def self.assign(tcp_socket, connected)
          IO.instance_method(:initialize).bind_call(tcp_socket, connected.fileno, "r+b")
          connected.autoclose = false
          tcp_socket.sync = true
          tcp_socket.do_not_reverse_lookup = BasicSocket.do_not_reverse_lookup
        end
      end

      # Of TCPServer.
      module TCPServerBind
        def initialize(*arguments)
          return reactor_tcpserver_initialize(*arguments) unless arguments.size == 2

          NameResolution.resolve(*arguments) { reactor_tcpserver_initialize(*arguments) }
        end
      end

      # Of UDPSocket.
      module UDPSocketAddress
        def connect(host, port) = UDPSocketAddress.resolve(host, port) { reactor_udpsocket_connect(host, port) }

        def bind(host, port) = UDPSocketAddress.resolve(host, port) { reactor_udpsocket_bind(host, port) }

        def send(message, flags, *rest)
          return reactor_udpsocket_send(message, flags, *rest) unless rest.size == 2

          UDPSocketAddress.resolve(*rest) { reactor_udpsocket_send(message, flags, *rest) }
        end

        # Given an address of the wrong family, Ruby asks the hook for other addresses. Without the hook it reports the error.
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

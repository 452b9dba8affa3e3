# frozen_string_literal: true

require "socket"

module Reactor
  module Testing
    # Makes Ruby's socket classes use the world's {Network} in a fiber of a host. The sockets are real, and of the requested
    # classes, but are based on UNIX sockets: so C code accepts and reads as usual, and OpenSSL, IO.select and the hooks work.
    # Outside a host, each method does what Ruby does.
    #
    # @api private
    module Sockets
      # The option levels that every socket supports.
      LEVELS = [:SOCKET, "SOCKET", Socket::SOL_SOCKET].freeze
      private_constant :LEVELS

      class << self
        # @return [Connection::Endpoint, nil]
        def endpoint(socket) = socket.instance_variable_get(:@reactor_endpoint)

        # Turns the socket, which may be uninitialized or of another family, into one that listens on a new path.
        def bind(socket, boot, port)
          network = boot.world.network
          path = network.path
          port = network.bind(boot.host, socket, port, path)
          unix = Socket.new(:UNIX, :STREAM)
          unix.bind(Addrinfo.unix(path))
          replace(socket, unix)
          address = Addrinfo.new(Socket.sockaddr_in(port, boot.host.address), :INET, :STREAM)
          socket.instance_variable_set(:@reactor_endpoint, Listening.new(address, path))
        end

        # Turns the socket into the client's end of a connection.
        #
        # @param limit [Numeric, nil] seconds
        def connect(socket, boot, host, port, limit = nil)
          network = boot.world.network
          target = network.resolve(boot.host, host)
          connection = Fiber.scheduler.timeout_after(limit, Errno::ETIMEDOUT) { network.connect(boot.host, target, Integer(port)) }
          replace(socket, connection.own)
          socket.instance_variable_set(:@reactor_endpoint, connection.belongs_to(socket, 0))
          socket
        end

        # @param answer [BasicSocket, Array, Symbol] the result of accept
        def accepted(listener, answer)
          socket, address = answer
          listening = endpoint(listener)
          return answer unless listening && socket.is_a?(BasicSocket)

          socket.instance_variable_set(:@reactor_endpoint, Host::Boot.current.world.network.accepted(listening.path, socket))
          address ? [socket, endpoint(socket).remote] : socket
        end

        # @return [Addrinfo, nil] nil unless it is a TCP address
        def tcp(address)
          address = Addrinfo.new(address) if String === address
          address if address.ip?
        end

        # @return [Numeric, nil] time limit for connecting, in seconds
        def limit(options) = options.values_at(:connect_timeout, :open_timeout, :resolv_timeout).compact.first

        private

        # Gives the socket the other one's descriptor.
        def replace(socket, unix)
          if initialized?(socket)
            socket.reopen(unix)
            unix.close
          else
            IO.instance_method(:initialize).bind_call(socket, unix.fileno, "r+b")
            unix.autoclose = false
            socket.do_not_reverse_lookup = true
          end
          socket.sync = true
        end

        def initialized?(socket)
          socket.closed? || true
        rescue IOError
          false
        end
      end

      Listening = Struct.new(:local, :path) do
        def remote = raise(Errno::ENOTCONN)
      end

      # Prepended to TCPSocket.
      module TCPSocketConnect
        def initialize(host, service, *local, **options)
          boot = Host::Boot.current or return super
          Sockets.connect(self, boot, host, service, Sockets.limit(options))
        end
      end

      # Prepended to TCPServer.
      module TCPServerBind
        def initialize(*arguments)
          boot = Host::Boot.current or return super
          Sockets.bind(self, boot, Integer(arguments.last))
          listen(Socket::SOMAXCONN)
        end
      end

      # Prepended to Socket's singleton class.
      module SocketTCP
        def tcp(host, port, *local, **options)
          boot = Host::Boot.current or return super
          socket = Sockets.connect(allocate, boot, host, port, Sockets.limit(options))
          return socket unless block_given?

          begin
            yield socket
          ensure
            socket.close
          end
        end
      end

      # Prepended to Socket.
      module SocketConnect
        def connect(address)
          boot, tcp = Host::Boot.current, Sockets.tcp(address)
          return super unless boot && tcp

          Sockets.connect(self, boot, tcp.ip_address, tcp.ip_port)
          0
        end

        def connect_nonblock(address, exception: true)
          Host::Boot.current && Sockets.tcp(address) ? connect(address) : super
        end

        def bind(address)
          boot, tcp = Host::Boot.current, Sockets.tcp(address)
          return super unless boot && tcp

          Sockets.bind(self, boot, tcp.ip_port)
          0
        end
      end

      # Prepended to TCPServer and Socket.
      module Accept
        def accept = Host::Boot.current ? Sockets.accepted(self, super) : super

        def accept_nonblock(exception: true) = Host::Boot.current ? Sockets.accepted(self, super) : super
      end

      # Prepended to BasicSocket.
      module Addresses
        def local_address = Sockets.endpoint(self)&.local || super
        def remote_address = Sockets.endpoint(self)&.remote || super
        def getsockname = Sockets.endpoint(self)&.local&.to_sockaddr || super
        def getpeername = Sockets.endpoint(self)&.remote&.to_sockaddr || super

        # Ignores TCP options, which UNIX sockets do not have.
        def setsockopt(level, *rest)
          rest.any? && !LEVELS.include?(level) && Sockets.endpoint(self) ? 0 : super
        end
      end

      # Prepended to IPSocket.
      module IPAddresses
        def addr(*) = Sockets.endpoint(self) ? IPAddresses.of(local_address) : super
        def peeraddr(*) = Sockets.endpoint(self) ? IPAddresses.of(remote_address) : super

        def self.of(address) = ["AF_INET", address.ip_port, address.ip_address, address.ip_address]
      end

      # Prepended to the singleton class of Addrinfo.
      module Lookup
        def getaddrinfo(host, service = nil, *, **)
          boot = Host::Boot.current or return super
          [Addrinfo.new(Socket.sockaddr_in(service.to_i, boot.world.network.resolve(boot.host, host).address), :INET, :STREAM)]
        end
      end

      # Prepended to the singleton class of IPSocket.
      module AddressLookup
        def getaddress(host)
          boot = Host::Boot.current or return super
          boot.world.network.resolve(boot.host, host).address
        end
      end
    end
    private_constant :Sockets
  end
end

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
      LIMITS = %i[connect_timeout open_timeout resolv_timeout].freeze
      private_constant :LEVELS, :LIMITS

      class << self
        # @return [Connection::Endpoint, Listening, Connecting, nil]
        def endpoint(socket) = socket.instance_variable_get(:@reactor_endpoint)

        # @return [String, nil] the socket with its addresses
        def shown(socket)
          ends = endpoint(socket)&.to_a&.grep(Addrinfo) or return
          "#<#{socket.class} #{ends.map(&:inspect_sockaddr).join(" to ")}>"
        end

        # @return [Addrinfo, nil] an address of an open socket
        def address(socket, side) = socket.closed? ? nil : endpoint(socket)&.public_send(side)

        # Turns the socket, which may be uninitialized or of another family, into one that listens on a new path.
        def bind(socket, boot, name, port)
          unix = Socket.new(:UNIX, :STREAM)
          listener = boot.world.network.bind(boot.host, socket, name, port)
          unix.bind(Addrinfo.unix(listener.path))
          replace(socket, unix)
          address = Addrinfo.new(Socket.sockaddr_in(listener.port, boot.host.address), :INET, :STREAM)
          socket.instance_variable_set(:@reactor_endpoint, Listening.new(address, listener))
        rescue SystemCallError, SocketError
          unix&.close
          raise
        end

        # Turns the socket into the client's end of a connection.
        #
        # @param limit [Numeric, nil] seconds
        # @param error [Class] raised after that
        def connect(socket, boot, name, port, limit = nil, error = Errno::ETIMEDOUT)
          network = boot.world.network
          host = network.resolve(boot.host, name)
          pair = Socket.pair(:UNIX, :STREAM)
          connection = Fiber.scheduler.timeout_after(limit, error, "user specified timeout") do
            network.connect(boot.host, host, port, pair)
          end
          replace(socket, pair.first)
          socket.instance_variable_set(:@reactor_endpoint, connection.belongs_to(socket, 0))
          socket
        ensure
          pair&.first&.close unless endpoint(socket)
        end

        # Turns the socket into one that is not writable until it is connected, or until that has failed.
        def begin_connect(socket, boot, name, port)
          network = boot.world.network
          host = network.resolve(boot.host, name)
          own, other = Socket.pair(:UNIX, :STREAM)
          replace(socket, own)
          nil while socket.write_nonblock("x" * 65_536, exception: false).is_a?(Integer)
          connecting = socket.instance_variable_set(:@reactor_endpoint, Connecting.new)
          Fiber.schedule do
            connection = network.connect(boot.host, host, port, [socket, other])
            socket.instance_variable_set(:@reactor_endpoint, connection.belongs_to(socket, 0))
          rescue SystemCallError => error
            connecting.error = error
          end
        end

        # @raise [SystemCallError] the socket is connected or connecting, or that has failed
        def check_unconnected(socket) = endpoint(socket)&.connect_error&.then { |error| raise error }

        # @param answer [BasicSocket, Array, Symbol] the result of accept
        def accepted(listener, answer)
          socket, address = answer
          listening = endpoint(listener)
          return answer unless listening && socket.is_a?(BasicSocket)

          socket.instance_variable_set(:@reactor_endpoint, Host::Boot.current.world.network.accepted(listening.listener, socket))
          address ? [socket, endpoint(socket).remote] : socket
        end

        # @return [Addrinfo, nil] nil unless it is a TCP address
        def tcp(address)
          address = Addrinfo.new(address) if String === address
          address if address.ip?
        end

        # @return [Numeric, nil] time limit for connecting, in seconds
        def limit(options)
          unknown = options.keys - [*LIMITS, :fast_fallback]
          raise ArgumentError, "unknown keyword: #{unknown.first.inspect}" if unknown.any?

          options.values_at(*LIMITS).compact.first
        end

        # @param service [Integer, String, nil] a port, or a name in /etc/services
        def port(service) = Integer(service || 0, exception: false) || Socket.getservbyname(service)

        private

        # Gives the socket the other one's descriptor, and its class.
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

      Listening = Struct.new(:local, :listener) do
        def remote = raise(Errno::ENOTCONN)
        def connect_error = nil
      end

      Connecting = Struct.new(:error) do
        def local = nil
        def remote = raise(Errno::ENOTCONN)
        def reset = false
        def connect_error = error || Errno::EALREADY
      end

      # Prepended to TCPSocket.
      module TCPSocketConnect
        def initialize(host, service, *local, **options)
          boot = Host::Boot.current or return super
          Sockets.connect(self, boot, host, Sockets.port(service), Sockets.limit(options), IO::TimeoutError)
        end
      end

      # Prepended to TCPServer.
      module TCPServerBind
        def initialize(host = nil, service) # rubocop:disable Style/OptionalArguments -- as Ruby's
          boot = Host::Boot.current or return super
          Sockets.bind(self, boot, host, Sockets.port(service))
          listen(Socket::SOMAXCONN)
        end
      end

      # Prepended to Socket's singleton class.
      module SocketTCP
        def tcp(host, port, *local, **options)
          boot = Host::Boot.current or return super
          socket = Sockets.connect(allocate, boot, host, Sockets.port(port), Sockets.limit(options))
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

          Sockets.check_unconnected(self)
          Sockets.connect(self, boot, tcp.ip_address, tcp.ip_port)
          0
        end

        def connect_nonblock(address, exception: true)
          boot, tcp = Host::Boot.current, Sockets.tcp(address)
          return super unless boot && tcp

          Sockets.check_unconnected(self)
          Sockets.begin_connect(self, boot, tcp.ip_address, tcp.ip_port)
          exception ? raise(IO::EINPROGRESSWaitWritable, "connect(2) would block") : :wait_writable
        rescue Errno::EISCONN
          exception ? raise : 0
        end

        def bind(address)
          boot, tcp = Host::Boot.current, Sockets.tcp(address)
          return super unless boot && tcp

          Sockets.bind(self, boot, tcp.ip_address, tcp.ip_port)
          0
        end
      end

      # Prepended to TCPServer and Socket.
      module Accept
        def accept = Host::Boot.current ? Sockets.accepted(self, super) : super

        def accept_nonblock(exception: true) = Host::Boot.current ? Sockets.accepted(self, super) : super

        def sysaccept = Host::Boot.current ? raise(NotImplementedError, "the network has no sysaccept; use accept") : super
      end

      # Prepended to BasicSocket.
      module Addresses
        def local_address = Sockets.address(self, :local) || super
        def remote_address = Sockets.address(self, :remote) || super
        def getsockname = Sockets.address(self, :local)&.to_sockaddr || super
        def getpeername = Sockets.address(self, :remote)&.to_sockaddr || super
        def inspect = Sockets.shown(self) || super

        # UNIX sockets lack the TCP options. Setting one is ignored; reading one returns 1.
        def setsockopt(level, *rest) = Addresses.tcp?(self, rest.empty? ? level.level : level) ? 0 : super
        def getsockopt(level, name) = Addresses.tcp?(self, level) ? Socket::Option.int(:INET, level, name, 1) : super

        def self.tcp?(socket, level) = Sockets.endpoint(socket) && !LEVELS.include?(level)
      end

      # Prepended to IPSocket.
      module IPAddresses
        def addr(*) = Sockets.address(self, :local) ? IPAddresses.of(local_address) : super
        def peeraddr(*) = Sockets.address(self, :remote) ? IPAddresses.of(remote_address) : super

        def inspect = Sockets.shown(self) || super

        def self.of(address) = ["AF_INET", address.ip_port, address.ip_address, address.ip_address]
      end

      # Prepended to the singleton class of Addrinfo.
      module Lookup
        def getaddrinfo(host, service = nil, *, **)
          boot = Host::Boot.current or return super
          [Addrinfo.new(Socket.sockaddr_in(Sockets.port(service), boot.world.network.address(boot.host, host)), :INET, :STREAM)]
        end

        def tcp(host, service) = Host::Boot.current ? getaddrinfo(host, service).first : super
        def ip(host) = Host::Boot.current ? getaddrinfo(host).first : super
      end

      # Prepended to the singleton class of IPSocket.
      module AddressLookup
        def getaddress(host)
          boot = Host::Boot.current or return super
          boot.world.network.address(boot.host, host)
        end
      end
    end
    private_constant :Sockets
  end
end

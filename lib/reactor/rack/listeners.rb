# frozen_string_literal: true

require "socket"

module Reactor
  class Rack
    # The listening sockets of a service: those that systemd has opened, or else one for each address of the hosts. Workers share them,
    # so any worker that has time accepts a connection. With SO_REUSEPORT, each worker has a set of its own instead, among which the
    # kernel distributes connections. The sockets stay open in the parent, so no connection is lost when a worker is replaced.
    #
    # @api private
    class Listeners
      UNIX = "unix:"
      ATTEMPTS = 10 # attempts to find a port that is free on all addresses
      FIRST = 3 # the first descriptor that systemd passes
      private_constant :UNIX, :ATTEMPTS, :FIRST

      # @param hosts [Array<String>]
      # @param places [Integer] number of sets: one per worker, or 1, which workers share
      # @param backlog [Integer] connections that may wait in the queue of each socket
      # @param mode [Integer, nil] permissions of UNIX sockets; nil: those of the umask
      # @raise [SystemCallError, SocketError]
      def initialize(hosts, port, places, backlog, mode)
        @places = places
        @backlog = backlog
        @mode = mode
        @files = {} # path of a UNIX socket => device and inode
        @sets = []
        @sets = passed
        hosts = [] unless @sets.empty?
        hosts.each do |host|
          @sets << open(host, port)
        rescue SocketError, ArgumentError => error # which name no address
          raise error, "#{host}: #{error.message}"
        end
        @names = @sets.zip(hosts).map { |sets, host| name(sets.first.first, host) }
        opened = true
      ensure
        close unless opened
      end

      # @return [String] all URLs
      def url(tls) = @names.map { |name| name.start_with?(UNIX) ? name : "#{tls ? 'https' : 'http'}://#{name}" }.join(", ")

      # @return [Array<Socket, UNIXServer>] for one worker
      def of(place) = @sets.flat_map { |sets| sets[place % sets.size] }

      # Removes the files of UNIX sockets, except those that a successor has bound meanwhile. Call it before the last socket is closed:
      # until then, no other file gets this one's number.
      def unlink
        @files.each do |path, file|
          now = File.lstat(path)
          File.unlink(path) if [now.dev, now.ino] == file
        rescue Errno::ENOENT
          nil # somebody else has removed it
        end
        @files = {}
      end

      # Closes the sockets of the other workers. The parent removes the files of UNIX sockets.
      def keep(place)
        @files = {}
        (@sets.flatten - of(place)).each(&:close)
      end

      def close
        unlink
        @sets.flatten.each(&:close)
      end

      private

      def open(host, port) = host.start_with?(UNIX) ? [[unix(host.delete_prefix(UNIX))]] : tcp(host.delete_prefix("[").delete_suffix("]"), port)

      # @return [Array] the sockets that systemd has opened for this process, each for all workers
      def passed
        count = ENV["LISTEN_PID"] == Process.pid.to_s ? ENV["LISTEN_FDS"].to_i : 0
        return [] unless count.positive?

        %w[LISTEN_PID LISTEN_FDS LISTEN_FDNAMES].each { |name| ENV.delete(name) } # children would take them for theirs
        Array.new(count) do |index|
          socket = Socket.for_fd(FIRST + index)
          raise ArgumentError, "descriptor #{FIRST + index} is not a listening socket" unless socket.getsockopt(:SOCKET, :ACCEPTCONN).bool

          [[socket]]
        end
      end

      def name(socket, host)
        address = socket.local_address
        return "#{UNIX}#{address.unix_path}" unless address.ip?

        host ||= address.ip_address
        "#{host.include?(':') && !host.start_with?('[') ? "[#{host}]" : host}:#{address.ip_port}"
      end

      def unix(path)
        if File.socket?(path)
          begin
            UNIXSocket.new(path).close
          rescue Errno::ECONNREFUSED
            File.unlink(path) # nobody is listening there any more
          end
        end
        earlier = File.umask(0o777 & ~@mode) if @mode
        server = UNIXServer.new(path)
        @files[path] = File.lstat(path).then { |file| [file.dev, file.ino] }
        server.tap { server.listen(@backlog) }
      ensure
        File.umask(earlier) if earlier
      end

      def tcp(host, port)
        addresses = Addrinfo.getaddrinfo(host, port, nil, :STREAM, nil, Socket::AI_PASSIVE).uniq(&:ip_address)
        @has_ipv4 = addresses.any?(&:ipv4?)
        shares = @places > 1
        bind(addresses, port, false).each(&:close) if shares # raises if another process uses the port, instead of sharing it
        first = bind(addresses, port, shares)
        rest = shares ? Array.new(@places - 1) { bind(addresses, first.first.local_address.ip_port, true) } : []
        [first, *rest]
      end

      # @return [Array<Socket>] one for each of the addresses that this machine has
      def bind(addresses, port, shares)
        attempts ||= 0
        sockets = []
        missing = nil
        addresses.each do |address|
          sockets << listen(address, sockets.first&.local_address&.ip_port || port, shares)
        rescue Errno::EADDRNOTAVAIL, Errno::EAFNOSUPPORT => missing
          next # such as ::1 on a machine without IPv6
        end
        sockets.empty? ? raise(missing) : sockets
      rescue Errno::EADDRINUSE
        sockets.each(&:close)
        retry if port.zero? && (attempts += 1) < ATTEMPTS
        raise
      end

      def listen(address, port, shares)
        socket = Socket.new(address.afamily, :STREAM)
        socket.setsockopt(:SOCKET, :REUSEADDR, true) unless VM::WINDOWS # on Windows, it would let two processes share a port
        socket.setsockopt(:SOCKET, :REUSEPORT, true) if shares
        socket.ipv6only! if address.ipv6? && @has_ipv4 # else `::` serves both
        socket.bind(Addrinfo.tcp(address.ip_address, port))
        socket.listen(@backlog)
        listening = socket
      ensure
        socket&.close unless listening
      end
    end
    private_constant :Listeners
  end
end

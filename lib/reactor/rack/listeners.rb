# frozen_string_literal: true

require "socket"

module Reactor
  class Rack
    # The listening sockets of a service: one for each address of the host. Workers share them, so any worker that has time accepts
    # a connection. With SO_REUSEPORT, each worker has a set of its own instead, among which the kernel distributes connections. The
    # sockets stay open in the parent, so no connection is lost when a worker is replaced.
    #
    # @api private
    class Listeners
      UNIX = "unix:"
      ATTEMPTS = 10 # attempts to find a port that is free on all addresses
      private_constant :UNIX, :ATTEMPTS

      # @param places [Integer] number of sets: one per worker, or 1, which workers share
      # @raise [SystemCallError, SocketError]
      def initialize(host, port, places)
        @path = host.delete_prefix(UNIX) if host.start_with?(UNIX)
        @host = host.delete_prefix("[").delete_suffix("]")
        @places = places
        @sockets = @path ? [unix] : tcp(port)
        @port = @sockets.first.first.local_address.ip_port unless @path
      end

      def url(tls)
        return "#{UNIX}#{@path}" if @path

        "#{tls ? 'https' : 'http'}://#{@host.include?(':') ? "[#{@host}]" : @host}:#{@port}"
      end

      # @return [Array<Socket, UNIXServer>] for one worker
      def of(place) = @sockets[place % @sockets.size]

      # Removes the file of a UNIX socket, unless a successor has bound the path meanwhile. Call it before the last socket is closed:
      # until then, no other file gets this one's number.
      def unlink
        return unless @file

        now = File.lstat(@path)
        File.unlink(@path) if [now.dev, now.ino] == @file
      rescue Errno::ENOENT
        nil # somebody else has removed it
      ensure
        @file = nil
      end

      # Closes the sockets of the other workers. The parent removes the file of a UNIX socket.
      def keep(place)
        @file = nil
        (@sockets - [of(place)]).flatten.each(&:close)
      end

      def close
        unlink
        @sockets.flatten.each(&:close)
      end

      private

      def unix
        if File.socket?(@path)
          begin
            UNIXSocket.new(@path).close
          rescue Errno::ECONNREFUSED
            File.unlink(@path) # nobody is listening there any more
          end
        end
        server = UNIXServer.new(@path)
        @file = File.lstat(@path).then { |file| [file.dev, file.ino] }
        [server]
      end

      def tcp(port)
        addresses = Addrinfo.getaddrinfo(@host, port, nil, :STREAM, nil, Socket::AI_PASSIVE).uniq(&:ip_address)
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
        socket.listen(Socket::SOMAXCONN)
        listening = socket
      ensure
        socket&.close unless listening
      end
    end
    private_constant :Listeners
  end
end

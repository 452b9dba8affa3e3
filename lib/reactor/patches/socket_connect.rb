# frozen_string_literal: true

require_relative "../connect/outcome"

module Reactor
  module Patches
    # Of Socket on Windows, where new sockets are in blocking mode, so connect(2) would block the thread.
    #
    # @api private
    module SocketConnect
      def self.needed? = VM::WINDOWS

      # @param address [Addrinfo, String]
      # @return [0]
      # @raise [SystemCallError, IOError, TypeError] as without a scheduler
      def connect(address)
        return reactor_socket_connect(address) unless Schedulers.current

        connect_nonblock(address) # with exception: false it would return 0 for a socket that is already connected
      rescue IO::WaitWritable
        wait_writable
        SocketConnect.raise_failure_of(self, address)
        0
      end

      # Ruby's methods call it again when the socket is writable, to learn the outcome of the attempt. On Windows, that call would
      # start another attempt.
      #
      # @return [0, :wait_writable]
      # @raise [SystemCallError, IOError, TypeError] as without a scheduler
      def connect_nonblock(address, exception: true)
        SocketConnect.raise_failure_of(self, address) if Schedulers.current
        reactor_socket_connect_nonblock(address, exception: exception)
      end

      def self.raise_failure_of(socket, address)
        number = ConnectOutcome.errno(socket) or return
        address = Addrinfo.new(address) if String === address
        raise SystemCallError.new("connect(2) for #{address.inspect_sockaddr}", number)
      end
    end
  end
end

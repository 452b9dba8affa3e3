# frozen_string_literal: true

require_relative "../connect/outcome"

module Reactor
  module Patches
    # Prepended to Socket on Windows, where a socket blocks at first, and with it the thread in connect(2).
    #
    # @api private
    module SocketConnect
      def self.needed? = VM::WINDOWS

      # @param address [Addrinfo, String]
      # @return [0]
      # @raise [SystemCallError, IOError, TypeError] as without a scheduler
      def connect(address)
        return super unless Schedulers.current

        connect_nonblock(address) # without an exception it would return 0 for a socket that is connected
      rescue IO::WaitWritable
        wait_writable
        SocketConnect.raise_failure_of(self, address)
        0
      end

      # Ruby's methods call it again when the socket is writable, to learn how the attempt has ended. On Windows that would begin
      # another one.
      #
      # @return [0, :wait_writable]
      # @raise [SystemCallError, IOError, TypeError] as without a scheduler
      def connect_nonblock(address, exception: true)
        SocketConnect.raise_failure_of(self, address) if Schedulers.current
        super
      end

      def self.raise_failure_of(socket, address)
        number = ConnectOutcome.errno(socket) or return
        address = Addrinfo.new(address) if String === address
        raise SystemCallError.new("connect(2) for #{address.inspect_sockaddr}", number)
      end
    end
  end
end

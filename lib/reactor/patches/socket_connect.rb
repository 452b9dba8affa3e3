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
        return 0 unless connect_nonblock(address, exception: false) == :wait_writable

        wait_writable
        code = ConnectOutcome.errno(self) or return 0
        raise SystemCallError.new("connect(2)", code)
      end
    end
  end
end

# frozen_string_literal: true

module Reactor
  # The outcome of an attempt to connect.
  #
  # @api private
  module ConnectOutcome
    # Maps error numbers of Windows Sockets (winerror.h) to those of C, because SystemCallError.new has no classes for the former.
    OF_WINDOWS = {
      10_013 => Errno::EACCES, 10_048 => Errno::EADDRINUSE, 10_049 => Errno::EADDRNOTAVAIL, 10_050 => Errno::ENETDOWN,
      10_051 => Errno::ENETUNREACH, 10_053 => Errno::ECONNABORTED, 10_054 => Errno::ECONNRESET, 10_055 => Errno::ENOBUFS,
      10_060 => Errno::ETIMEDOUT, 10_061 => Errno::ECONNREFUSED, 10_065 => Errno::EHOSTUNREACH
    }.transform_values { |error| error::Errno }.freeze
    private_constant :OF_WINDOWS

    # @param socket [Socket] is writable
    # @return [Integer, nil] errno; nil if the socket is connected
    def self.errno(socket)
      code = socket.getsockopt(Socket::SOL_SOCKET, Socket::SO_ERROR).int
      OF_WINDOWS.fetch(code, code) unless code.zero?
    end
  end
end

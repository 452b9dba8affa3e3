# frozen_string_literal: true

require "io/nonblock" unless RUBY_PLATFORM.match?(/mingw|mswin/)
require "socket"

module Reactor
  module Patches
    # Of BasicSocket's singleton class. Ruby's own sockets are in non-blocking mode, but one that the program was given
    # may not be: by systemd, a parent process, UNIXSocket#recv_io or a C library. The accept, recv, send, connect and similar of
    # such a socket would block the thread, because Ruby calls no hook before it tries them. So sockets are put into non-blocking
    # mode when they get their object; those that have one already, when this is installed.
    #
    # The mode belongs to the open file description, which other processes may share. Ruby's `_nonblock` methods set it as well.
    #
    # @api private
    module SocketMode
      def self.needed? = !VM::WINDOWS # there each hook call does it

      def self.installed = ObjectSpace.each_object(BasicSocket) { |socket| set(socket) }

      # @return [BasicSocket]
      # @raise as without a scheduler
      def for_fd(...) = SocketMode.set(reactor_basicsocket_for_fd(...))

      # IO#fcntl would be a blocking call, in which another thread's close of the socket raises later.
      def self.set(socket)
        socket.nonblock = true unless socket.nonblock?
        socket
      rescue IOError, FrozenError, SystemCallError
        socket # closed, perhaps behind its back, or never opened
      end
    end
  end
end

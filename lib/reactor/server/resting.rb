# frozen_string_literal: true

module Reactor
  class Server
    # The connections that have no fiber, in the order in which they became idle.
    #
    # @api private
    class Resting
      # How many connections are looked at to find an idle one.
      ASKED = 8
      private_constant :ASKED

      # @param scheduler [Lifecycle]
      # @param drop [#call] is given each connection to close
      def initialize(scheduler, drop)
        @scheduler = scheduler
        @drop = drop
        @watchers = {}.compare_by_identity # by socket
      end

      def size = @watchers.size

      # Runs the block in a fiber when the connection is ready.
      def watch(connection, events, timeout, block)
        @watchers[connection.to_io] = @scheduler.on_ready(connection, events, timeout: timeout, &block)
      end

      # Called when a connection has got a fiber, or has been closed.
      def delete(socket) = @watchers.delete(socket)

      # Closes all, without telling TLS clients, which might wait.
      #
      # @return [Integer] connections that were closed
      def close_all = close(@watchers.values, &:to_io)

      # Closes those that have not sent a request.
      def close_idle = close(@watchers.values.select { |watcher| idle?(watcher) }, &:itself)

      # @return [Watcher, nil] of the connection that has been idle for longest
      def longest_idle = @watchers.each_value.first(ASKED).find { |watcher| idle?(watcher) }

      def close_longest_idle = close([longest_idle].compact, &:to_io)

      # @return [Boolean] whether bytes have arrived
      def request?(connection)
        Watching.read_ahead?(connection, IO::READABLE) || !Fiber.blocking { connection.to_io.wait_readable(0) }.nil?
      rescue SystemCallError, IOError
        false
      end

      private

      def idle?(watcher) = !watcher.io.nil? && !request?(watcher.io)

      def close(watchers)
        watchers.count do |watcher|
          connection = watcher.io
          @drop.call(yield(connection)) || true if connection && watcher.cancel
        end
      end
    end
    private_constant :Resting
  end
end

# frozen_string_literal: true

require_relative "../schedulers"

module Reactor
  module Patches
    # Keeps the order of writes to a socket that do not go through the scheduler's hooks (backend uring only).
    #
    # With the backend uring the kernel gets a write that shares a turn with other writes at the end of the turn, and the
    # fiber is parked until then. Plain Ruby promises no order between a write that has not returned and what another thread
    # does meanwhile. But on every other backend a small write is complete before another fiber runs, and
    # `Fiber.schedule { socket.write(text) }; socket.close_write` sends the text. So these methods first submit the queued
    # writes. IO#write and its like go through the hooks, which keep the order.
    #
    # @api private
    module SocketWriteOrder
      # Prepended to BasicSocket.
      module Calls
        def send(...) = SocketWriteOrder.submit && super

        def sendmsg(...) = SocketWriteOrder.submit && super

        def sendmsg_nonblock(...) = SocketWriteOrder.submit && super

        def write_nonblock(...) = SocketWriteOrder.submit && super

        def close_write = SocketWriteOrder.submit && super

        def shutdown(...) = SocketWriteOrder.submit && super
      end

      # Prepended to IO's singleton class.
      module Copying
        def copy_stream(...) = SocketWriteOrder.submit && super
      end

      # @return [true]
      def self.submit
        Schedulers.current&.submit
        true
      end
    end
  end
end

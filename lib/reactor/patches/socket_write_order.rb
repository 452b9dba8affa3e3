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
        def send(...) = SocketWriteOrder.flush_sends && super

        def sendmsg(...) = SocketWriteOrder.flush_sends && super

        def sendmsg_nonblock(...) = SocketWriteOrder.flush_sends && super

        def write_nonblock(...) = SocketWriteOrder.flush_sends && super

        def close_write = SocketWriteOrder.flush_sends && super

        def shutdown(...) = SocketWriteOrder.flush_sends && super
      end

      # Prepended to IO's singleton class.
      module Copying
        def copy_stream(...) = SocketWriteOrder.flush_sends && super
      end

      # @return [true]
      def self.flush_sends
        Schedulers.current&.flush_sends
        true
      end
    end
  end
end

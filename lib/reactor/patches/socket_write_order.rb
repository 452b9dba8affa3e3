# frozen_string_literal: true

module Reactor
  # What goes to a socket around the scheduler's hooks goes after the writes of other fibers that have begun.
  #
  # With the backend `uring` a write that shares a turn with others reaches the kernel at the end of the turn, its fiber
  # being parked until then. Plain Ruby promises no order between a write that has not returned and anything another thread
  # does meanwhile; but on every other backend a small write is over before anybody else has a turn, and
  # `Fiber.schedule { socket.write(text) }; socket.close_write` sends the text. So from the first scheduler on io_uring on,
  # these methods hand over first what is queued. IO#write and its kin go by the hooks, and keep the order there.
  module Sending
    # @api private
    module Calls
      def send(...) = Sending.submit && super

      def sendmsg(...) = Sending.submit && super

      def sendmsg_nonblock(...) = Sending.submit && super

      def write_nonblock(...) = Sending.submit && super

      def close_write = Sending.submit && super

      def shutdown(...) = Sending.submit && super
    end

    # @api private
    module Copying
      def copy_stream(...) = Sending.submit && super
    end

    class << self
      # @api private
      def install
        BasicSocket.prepend(Calls)
        IO.singleton_class.prepend(Copying)
      end

      # @api private
      def submit
        scheduler = Fiber.current_scheduler
        scheduler.submit if scheduler.is_a?(Lifecycle) && scheduler.respond_to?(:submit)
        true
      end
    end
  end
end

# frozen_string_literal: true

require_relative "io_close"

module Reactor
  module Patches
    # Prepended to IO and BasicSocket. IO#close_read and #close_write do not call IO#close where they close a descriptor: one end
    # of a pipe, one of the two pipes of IO.popen, a socket of which the other direction was closed before. So they tell the
    # schedulers themselves.
    #
    # @api private
    module IOHalfClose
      # @return [nil]
      def close_read = IOHalfClose.announced(self, true) { super }

      # @return [nil]
      def close_write = IOHalfClose.announced(self, false) { super }

      # @param io [IO]
      # @param reading [Boolean] whether it is the half for reading
      # @yield closes it
      # @api private
      def self.announced(io, reading)
        number = io.fileno unless io.closed?
        if number && IOClose.notify_schedulers(io) { |scheduler| scheduler.prepare_half_close(io, reading) }
          IOClose.yield_to_interrupted
        end
        yield
      ensure
        # After close_read an IO of two pipes has the descriptor of its writer.
        is_other = number && (io.closed? || io.fileno != number)
        Schedulers.each { |scheduler| scheduler.replaced(io, true) } if is_other
      end
    end
  end
end

# frozen_string_literal: true

module Reactor
  class Rack
    # Extends the connection that a streaming body is called with. Writes wait for as long as the client takes bytes ({Writing}), one
    # at a time. Over TLS it has the methods that Rack demands of a stream besides those of an SSLSocket.
    #
    # @api private
    module Stream
      def self.extended(stream)
        stream.instance_variable_set(:@whole, Thread::Mutex.new)
      end

      # @return [Integer] bytes written
      # @raise [IO::TimeoutError] the client does not read
      def write(*parts)
        @whole.synchronize do
          parts.sum do |part|
            bytes = part.to_s
            Writing.new(self).write(bytes)
            bytes.bytesize
          end
        end
      end

      def <<(part)
        write(part)
        self
      end

      def close_read = IO === self ? super : to_io.shutdown(:RD)

      def close_write
        return super if IO === self

        close # only TLS, because its sync_close is false
        to_io.close_write
      end
    end
    private_constant :Stream
  end
end

# frozen_string_literal: true

require "socket"

module Reactor
  class PortableScheduler
    # A question to the resolver, which a thread of its own asks. Its fiber may leave at any time.
    #
    # @api private
    class Lookup
      # @param arguments [Array] of getaddrinfo(3)
      # @raise [ThreadError] no thread can be started
      def initialize(*arguments)
        @thread = Thread.new do
          @found = Addrinfo.getaddrinfo(*arguments)
        rescue StandardError => @error
          nil
        ensure
          @error ||= ThreadError.new("the lookup was killed") unless @found
          @listener&.call
        end
      end

      # @return [Boolean] whether {#answer} has one
      def ended? = !!(@found || @error)

      # @param asker [String] what the message of an error begins with
      # @return [Array(String, Integer, Integer, Integer), nil] address, family, socktype, protocol of each; nil if there is
      #   no answer so far
      # @raise [SocketError, SystemCallError] Ruby's own
      def answer(asker)
        return unless ended?
        raise @error.exception(@error.message.sub(/\Agetaddrinfo(\(3\))?(?=:)/, asker)) if @error

        @found.map { |address| [address.to_sockaddr, address.pfamily, address.socktype, address.protocol] }
      end

      # Drops the answer.
      def cancel
        @listener = nil
        @thread.kill
      end

      # Calls the block when the lookup has ended: at least once, by any thread, and at once if it has ended before.
      def on_done(&listener)
        @listener = listener
        listener.call if ended?
      end
    end
  end
end

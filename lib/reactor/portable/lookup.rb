# frozen_string_literal: true

require "socket"

module Reactor
  class PortableScheduler
    # A request to the resolver, made on a thread of its own. The fiber may leave at any time.
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

      # @return [Boolean] whether there is an answer or an error
      def ended? = !!(@found || @error)

      # @param asker [String] first word of the error message
      # @return [Array(String, Integer, Integer, Integer), nil] address, family, socktype and protocol of each result; nil if
      #   there is no answer yet
      # @raise [SocketError, SystemCallError] Ruby's own
      def answer(asker)
        return unless ended?
        raise @error.exception(@error.message.sub(/\Agetaddrinfo(\(3\))?(?=:)/, asker)) if @error

        @found.map { |address| [address.to_sockaddr, address.pfamily, address.socktype, address.protocol] }
      end

      # Abandons the lookup.
      def cancel
        @listener = nil
        @thread.kill
      end

      # Calls the block when the lookup has ended, or at once if it has ended already. May call it twice, on any thread.
      def on_done(&listener)
        @listener = listener
        listener.call if ended?
      end
    end
  end
end

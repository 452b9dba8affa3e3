# frozen_string_literal: true

require "socket"

module Reactor
  class PortableScheduler
    # A question to the resolver that is on its way. Whoever asked may leave at any time: what has not begun never will,
    # what has goes on to its end, unheard.
    class Lookup
      # Questions that are asked at once.
      LIMIT = 16

      # @param question [Array] the arguments of getaddrinfo(3)
      def initialize(question)
        @question = question
      end

      # By whatever thread: asks, and tells whoever waits.
      def ask
        return if @cancelled

        @found = Addrinfo.getaddrinfo(*@question)
      rescue StandardError => @error
        nil
      ensure
        @ended = true
        @listener&.call
      end

      # @return [Boolean] whether {#answer} has one
      def ended? = !!@ended

      # @param asker [String] what the message of an error begins with
      # @return [Array(String, Integer, Integer, Integer), nil] address, family, socktype, protocol of each; nil if there is
      #   no answer so far
      # @raise [SocketError, SystemCallError] Ruby's own
      def answer(asker)
        return unless ended?
        raise @error.exception(@error.message.sub(/\Agetaddrinfo(\(3\))?(?=:)/, asker)) if @error

        @found.map { |address| [address.to_sockaddr, address.pfamily, address.socktype, address.protocol] }
      end

      # Nobody waits for the answer any more.
      def cancel
        @cancelled = true
        @listener = nil
      end

      # The block is called when it has ended: at least once, at once if it has, by whatever thread.
      def tell(&listener)
        @listener = listener
        listener.call if ended?
      end
    end

    # Threads that ask.
    class ResolverThreads
      # @param limit [Integer] threads at most
      def initialize(limit)
        @limit = limit
        @questions = []
        @size = 0
        @lock = Thread::Mutex.new
      end

      # @param question [#ask]
      def ask(question)
        @lock.synchronize do
          @questions << question
          start if @size < @limit
        end
      end

      private

      def start
        thread = Thread.new do
          while (question = take)
            question.ask
          end
        end
        @size += 1
        thread.name = "reactor: getaddrinfo"
      rescue ThreadError
        raise if @size.zero? # otherwise the others get round to it
      end

      # The next one; nil if there is none, and the thread is none of ours any more.
      def take
        @lock.synchronize { @questions.shift.tap { |question| @size -= 1 unless question } }
      end
    end
    private_constant :ResolverThreads
  end
end

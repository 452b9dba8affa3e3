# frozen_string_literal: true

require "socket"
require_relative "../vm"

module Reactor
  class PortableScheduler
    # A question to the resolver. Its fiber may leave at any time: a lookup that has not begun never will, one that has begun
    # goes on to its end, and its answer is dropped.
    #
    # @api private
    class Lookup
      # Threads that look up names at a time.
      LIMIT = 16

      # @param arguments [Array] of getaddrinfo(3)
      def initialize(arguments)
        @arguments = arguments
      end

      # @return [Boolean] whether /etc/hosts has an address of the wanted family for the host. If so, the lookup needs no network,
      #   unless nsswitch.conf asks another service first
      def in_hosts_file?
        host, _, family = @arguments
        File.foreach("/etc/hosts", encoding: Encoding::BINARY).any? do |line|
          address, *names = line[/[^#]*/].split
          names.any? { |name| name.casecmp(host)&.zero? } && (family.zero? || (family == Socket::AF_INET6) == address.include?(":"))
        end
      rescue SystemCallError
        false
      end

      # Asks the resolver, and tells the fiber that waits. Any thread may run it.
      def run
        return if @cancelled

        @found = Addrinfo.getaddrinfo(*@arguments)
      rescue StandardError => @error
        nil
      ensure
        @error ||= ThreadError.new("the lookup was killed") unless @found || @cancelled
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

      # Drops the answer.
      def cancel
        @cancelled = true
        @listener = nil
      end

      # Calls the block when the lookup has ended: at least once, by any thread, and at once if it has ended before.
      def on_done(&listener)
        @listener = listener
        listener.call if ended?
      end
    end

    # Threads that run lookups. Each ends when there is no lookup left.
    class ResolverThreads
      def initialize
        @lookups = []
        @size = 0
        @lock = Thread::Mutex.new
      end

      # A name in /etc/hosts does not queue behind those for which nameservers are asked.
      #
      # @param lookup [Lookup]
      def run(lookup)
        return Fiber.blocking { lookup.run } if @size == Lookup::LIMIT && Fiber.blocking { lookup.in_hosts_file? }

        @lock.synchronize do
          @lookups << lookup
          start if @size < Lookup::LIMIT
        end
      end

      private

      def start
        thread = Thread.new do
          VM.replace_storage(nil) # that of the fiber which happened to start it
          while (lookup = take)
            lookup.run
          end
        end
        @size += 1
        thread.name = "reactor: getaddrinfo"
      rescue ThreadError
        raise if @size.zero? # otherwise the threads there are run it later
      end

      # @return [Lookup, nil] the next one; nil if there is none, and the thread is no longer counted
      def take
        @lock.synchronize { @lookups.shift.tap { |lookup| @size -= 1 unless lookup } }
      end
    end
    private_constant :ResolverThreads
  end
end

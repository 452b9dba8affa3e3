# frozen_string_literal: true

require_relative "checks"
require_relative "scope"

module Reactor
  # A number of permits for fibers and threads, with or without a scheduler. Permits are granted in order of arrival.
  #
  #   connections = Reactor::Semaphore.new(5)
  #   connections.acquire { fetch(url) } # in five fibers at once, at most
  #
  # No permit is lost: if a waiter is cancelled or killed, or its timeout elapses, the next one gets its permit. In a forked child, nobody
  # else waits or is in a block. A semaphore belongs to one Ractor.
  class Semaphore
    # @!method initialize(permits)
    #   @param permits [Integer]
    #   @raise [ArgumentError] permits is below 1
    #   @raise [TypeError] permits is not an Integer
    #   @raise [RangeError] permits is too large for the platform

    # @!attribute [r] permits
    #   @return [Integer] permits in all, free or not

    # @!attribute [r] available
    #   @return [Integer] permits that are free

    # @!attribute [r] waiting
    #   @return [Integer] the number of waiters

    # @!method acquire(timeout: nil)
    #   Waits for a permit. With a block, releases the permit when the block ends, however it ends.
    #
    #   @param timeout [Numeric, nil] seconds; 0 or less: does not wait; nil: no limit
    #   @return what the block returns, or true without a block
    #   @raise [DeadlineExceeded] the timeout has elapsed
    #   @raise [TypeError] timeout is not a number; a subclass has not called `super` in its `initialize`
    #   @raise [RangeError] timeout is NaN

    # @!method try_acquire(timeout: 0)
    #   Like {#acquire}, but returns false if the timeout elapses.
    #
    #   @return what the block returns, or true without a block; false
    #   @raise [TypeError, RangeError] as {#acquire}

    # @!method release
    #   Releases a permit that was acquired without a block. Any fiber or thread may do that.
    #
    #   @return [nil]
    #   @raise [ThreadError] there is no such permit

    # @!method holders
    #   @return [Array<Fiber>] those in a block with a permit
    #   @api private

    # @return [String]
    def inspect = "#<#{self.class} #{available} of #{permits} available#{", #{waiting} waiting" if waiting.positive?}>"

    class << self
      private

      # The native library calls these.

      def count(permits) = Checks.count(:permits, permits)

      def limit(timeout) = Checks.limit(:timeout, timeout)

      def queue = Thread::Queue.new

      def wait(queue, seconds) = queue.pop(timeout: seconds)

      def too_late(seconds) = DeadlineExceeded.new("no permit within #{format("%g", seconds)} s")
    end
  end
end

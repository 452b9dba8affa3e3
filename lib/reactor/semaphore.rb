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
  # else waits or is in a block.
  class Semaphore
    # Defers Thread#kill, Thread#raise and Timeout.timeout.
    UNINTERRUPTED = { Object => :never }.freeze
    private_constant :UNINTERRUPTED

    # @param permits [Integer]
    # @raise [ArgumentError] permits is below 1
    # @raise [TypeError] permits is not an Integer
    def initialize(permits)
      @permits = Checks.count(:permits, permits)
      # A turn is the queue on which its owner waits, and a key of one of these hashes. The first two map it to the owner's fiber.
      @waiting = {}.compare_by_identity # in order of arrival
      @held = {}.compare_by_identity # until a block ends
      @kept = {}.compare_by_identity # until #release
      @mutex = Thread::Mutex.new # nothing waits while it is locked
      @pid = Process.pid
    end

    # @return [Integer] permits in all, free or not
    attr_reader :permits

    # @return [Integer] permits that are free
    def available = [@permits - @held.size - @kept.size, 0].max # for a moment, a turn is in both

    # Waits for a permit. With a block, releases the permit when the block ends, however it ends.
    #
    # @param timeout [Numeric, nil] seconds; 0 or less: does not wait; nil: no limit
    # @return what the block returns, or true without a block
    # @raise [DeadlineExceeded] the timeout has elapsed
    # @raise [TypeError] timeout is not a number; a subclass has not called `super` in its `initialize`
    # @raise [ThreadError] in a trap handler
    def acquire(timeout: nil)
      seconds = Checks.limit(:timeout, timeout)
      in_turn(seconds) do |turn|
        raise DeadlineExceeded, "no permit within #{format("%g", seconds)} s" unless turn

        block_given? ? yield : @kept[turn] = true
      end
    end

    # Takes a permit, which is released by {#release}.
    #
    # @param timeout [Numeric, nil] as in {#acquire}
    # @return [Boolean] false if the timeout elapses
    # @raise [TypeError] as in {#acquire}
    # @raise [ThreadError] in a trap handler
    def try_acquire(timeout: 0)
      in_turn(Checks.limit(:timeout, timeout)) { |turn| turn ? @kept[turn] = true : false }
    end

    # Releases a permit that was acquired without a block. Any fiber or thread may do that.
    #
    # @return [nil]
    # @raise [ThreadError] there is no such permit; in a trap handler
    def release
      change { @kept.shift or raise ThreadError, "no permit to release" }
      nil
    end

    # @return [Integer] the number of waiters
    def waiting = @waiting.size

    # @return [Array<Fiber>] those in a block with a permit
    # @api private
    def holders = @held ? @held.values : []

    # Releases the permit when the block ends, unless the block has kept its turn.
    #
    # @yieldparam turn [Thread::Queue, nil] nil: there was no permit within the time
    # @api private
    def in_turn(seconds)
      raise TypeError, "#{self.class} not initialized" unless @mutex # an error that lasts: see #leave

      turn = Thread::Queue.new
      begin
        change { @waiting[turn] = Fiber.current }
        yield(turn.pop(timeout: seconds) && turn)
      ensure
        leave(turn) # at once: Ruby may raise interrupts at a branch and when a C function returns
      end
    end

    # @return [String]
    def inspect = "#<#{self.class} #{available} of #{@permits} available#{", #{waiting} waiting" if waiting.positive?}>"

    private

    # Tries until the turn is forgotten: a trap handler may raise here, and the fiber or thread may be ended while it waits for
    # the mutex.
    def leave(turn)
      done = change { forget(turn) }
    ensure
      leave(turn) unless done || $!.is_a?(ThreadError) # raised only in a trap handler
    end

    def forget(turn)
      @waiting.delete(turn)
      @held.delete(turn)
      true
    end

    # Runs a block that changes who waits for a permit or holds one, then grants the free permits.
    def change
      @mutex.synchronize do # outside: the VM keeps masks per thread, so no fiber may wait in one
        Thread.handle_interrupt(UNINTERRUPTED) do
          forget_others unless @pid == Process.pid
          yield
        ensure
          grant
        end
      end
    end

    # If an exception ended an earlier call halfway, this one first completes that call's last step.
    def grant
      until @waiting.empty?
        turn, fiber = @waiting.first
        return unless available.positive? || @held.key?(turn)

        @held[turn] = fiber
        turn << true
        @waiting.delete(turn)
      end
    end

    # In a forked child, only the fiber that has forked continues.
    def forget_others
      @pid = Process.pid
      @waiting.clear
      @held.select! { |_, fiber| fiber.equal?(Fiber.current) }
    end
  end
end

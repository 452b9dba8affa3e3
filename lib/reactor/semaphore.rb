# frozen_string_literal: true

require_relative "options"

module Reactor
  # A counting semaphore for fibers and threads, with or without a scheduler. Permits are granted in order of arrival.
  #
  #   connections = Reactor::Semaphore.new(5)
  #   connections.acquire { fetch(url) } # at most five at a time
  #
  # If a waiting fiber or thread is cancelled or killed, or its timeout elapses, just when it is handed a permit, the permit goes
  # to the next one.
  class Semaphore
    # A request for a permit: where it waits, whether the permit was granted, and whether it is kept after the call.
    Turn = Struct.new(:queue, :granted, :kept)
    # Thread#kill, Thread#raise and Timeout.timeout are deferred until a permit has changed hands completely.
    WHOLE = { Object => :never }.freeze
    private_constant :Turn, :WHOLE

    # @return [Integer] free permits
    attr_reader :available

    # @param permits [Integer]
    # @raise [ArgumentError] permits is below 1
    # @raise [TypeError] permits is not an Integer
    def initialize(permits)
      @permits = @available = Options.count(:permits, permits)
      @waiting = {}.compare_by_identity # turns, oldest first
      @mutex = Thread::Mutex.new # nothing waits while holding it
      @pid = Process.pid
    end

    # Waits for a permit. With a block, releases the permit when the block has ended, however it ends.
    #
    # @param timeout [Numeric, nil] seconds; 0 or less: does not wait; nil: no limit
    # @return what the block returns, or true without a block; false when the timeout elapses
    # @raise [TypeError] timeout is not a number
    # @raise [ThreadError] in a trap handler
    def acquire(timeout: nil)
      seconds = Options.limit(:timeout, timeout)
      turn = Turn.new
      begin
        return false unless ask(turn) || (turn.queue.pop(timeout: seconds) && turn.granted)
        return turn.kept = true unless block_given?

        yield
      ensure
        give_back(turn) # must come first, because Ruby raises interrupts at branches
      end
    end

    # Takes a permit if one is free. Never waits.
    #
    # @return [Boolean]
    # @raise [ThreadError] in a trap handler
    def try_acquire
      change { @available.positive? && (@available -= 1) && true }
    end

    # Gives a permit back. Any fiber or thread may call this.
    #
    # @return [nil]
    # @raise [ThreadError] all permits are free; in a trap handler
    def release
      change do
        raise ThreadError, "all permits are free" if @available == @permits

        hand_on
      end
    end

    # @return [Integer] number of waiting fibers and threads
    def waiting = @waiting.size

    # @return [String]
    def inspect = "#<#{self.class} #{@available} of #{@permits} available#{", #{waiting} waiting" if waiting.positive?}>"

    private

    def change
      Thread.handle_interrupt(WHOLE) do
        @mutex.synchronize do
          forget_parents unless @pid == Process.pid
          yield
        end
      end
    end

    # In a forked child, nothing that waited in the parent is waiting.
    def forget_parents
      @pid = Process.pid
      @waiting.clear
    end

    # @return [Boolean] whether it got a permit immediately
    def ask(turn)
      change do
        next turn.granted = (@available -= 1) && true if @available.positive?

        turn.queue = Thread::Queue.new
        @waiting[turn] = true
        false
      end
    end

    # A scheduler may cancel the fiber while it waits for the mutex, and an interrupt may arrive when all is done; so this may be
    # called twice, and the second call changes nothing.
    def give_back(turn)
      done = change do
        @waiting.delete(turn)
        hand_on if turn.granted && !turn.kept
        turn.kept = true
      end
    ensure
      give_back(turn) unless done
    end

    def hand_on
      turn, = @waiting.shift
      return (@available += 1).then { nil } unless turn

      turn.granted = true
      turn.queue << true
      nil
    end
  end
end

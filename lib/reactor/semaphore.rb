# frozen_string_literal: true

require_relative "options"

module Reactor
  # A number of permits for fibers and threads, with or without a scheduler. Who comes first gets one first.
  #
  #   connections = Reactor::Semaphore.new(5)
  #   connections.acquire { fetch(url) } # in five fibers at once, at most
  #
  # A permit is handed to one who waits. If that one is cancelled, killed or out of time meanwhile, the next one gets it.
  class Semaphore
    # One who wants a permit: where it waits, whether it has a permit, and whether that outlasts the call.
    Turn = Struct.new(:queue, :granted, :kept)
    # Thread#kill, Thread#raise and Timeout.timeout wait until a permit is on one side or the other.
    WHOLE = { Object => :never }.freeze
    private_constant :Turn, :WHOLE

    # @return [Integer] permits that are free
    attr_reader :available

    # @param permits [Integer]
    # @raise [ArgumentError] permits is below 1
    # @raise [TypeError] permits is no Integer
    def initialize(permits)
      @permits = @available = Options.count(:permits, permits)
      @waiting = {}.compare_by_identity # turns, the first one first
      @mutex = Thread::Mutex.new # nothing waits while it is locked
      @pid = Process.pid
    end

    # Waits for a permit. With a block, the permit is released when the block has ended, in whatever way.
    #
    # @param timeout [Numeric, nil] seconds; 0 or less: does not wait; nil: no limit
    # @return what the block returns, or else true; false if the time is over
    # @raise [TypeError] timeout is no number
    # @raise [ThreadError] in a trap handler
    def acquire(timeout: nil)
      seconds = Options.limit(:timeout, timeout)
      turn = Turn.new
      begin
        return false unless ask(turn) || (turn.queue.pop(timeout: seconds) && turn.granted)
        return turn.kept = true unless block_given?

        yield
      ensure
        give_back(turn) # no branch comes before it, because Ruby raises interrupts at branches
      end
    end

    # Takes a permit, if one is free.
    #
    # @return [Boolean]
    # @raise [ThreadError] in a trap handler
    def try_acquire
      change { @available.positive? && (@available -= 1) && true }
    end

    # Gives a permit back. Any fiber or thread may do that.
    #
    # @return [nil]
    # @raise [ThreadError] all permits are free; in a trap handler
    def release
      change do
        raise ThreadError, "all permits are free" if @available == @permits

        hand_on
      end
    end

    # @return [Integer] how many wait for a permit
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

    # In a forked child nobody waits who has waited in the parent.
    def forget_parents
      @pid = Process.pid
      @waiting.clear
    end

    # @return [Boolean] whether it got a permit at once
    def ask(turn)
      change do
        next turn.granted = (@available -= 1) && true if @available.positive?

        turn.queue = Thread::Queue.new
        @waiting[turn] = true
        false
      end
    end

    # A scheduler may cancel the fiber while it waits for the mutex, and an interrupt may come when all is done: a second call changes nothing.
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

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
    # One who wants a permit: whether it has one, and where it waits.
    Turn = Struct.new(:granted, :queue)
    private_constant :Turn

    # @return [Integer] permits that are free
    attr_reader :available

    # @param permits [Integer]
    # @raise [ArgumentError] permits is below 1
    # @raise [TypeError] permits is no Integer
    def initialize(permits)
      @permits = @available = Options.count(:permits, permits)
      @waiting = {}.compare_by_identity # turns, the first one first
      @mutex = Thread::Mutex.new # nothing waits while it is locked
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

        kept = !block_given?
        kept ? true : yield
      ensure
        give_back(turn) unless kept
      end
    end

    # Takes a permit, if one is free.
    #
    # @return [Boolean]
    # @raise [ThreadError] in a trap handler
    def try_acquire
      @mutex.synchronize { @available.positive? && (@available -= 1) && true }
    end

    # Gives a permit back. Any fiber or thread may do that.
    #
    # @return [nil]
    # @raise [ThreadError] all permits are free; in a trap handler
    def release
      @mutex.synchronize do
        raise ThreadError, "all permits are free" if @available == @permits

        hand_on
      end
    end

    # @return [Integer] how many wait for a permit
    def waiting = @waiting.size

    # @return [String]
    def inspect = "#<#{self.class} #{@available} of #{@permits} available#{", #{waiting} waiting" if waiting.positive?}>"

    private

    # @return [Boolean] whether it got a permit at once
    def ask(turn)
      @mutex.synchronize do
        next turn.granted = (@available -= 1) && true if @available.positive?

        turn.queue = Thread::Queue.new
        @waiting[turn] = true
        false
      end
    end

    def give_back(turn)
      @mutex.synchronize { turn.granted ? hand_on : @waiting.delete(turn) }
      nil
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

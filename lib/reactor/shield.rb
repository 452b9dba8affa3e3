# frozen_string_literal: true

require_relative "deadline"
require_relative "scope"

module Reactor
  class << self
    # Runs a block that must not end halfway. A {Group::Task#cancel}, a {Group} that fails or whose timeout elapses, and a
    # {Reactor.deadline} would end it at a call in which it waits: if they are around the block, they take effect only when the
    # block has ended. In the block, {Reactor.remaining} is nil, and fibers started there have no deadline.
    #
    #   Reactor.shield do
    #     database.transaction { move(amount, from, to) }
    #   end
    #
    # The block runs in the same fiber, so it owns the fiber's Mutexes and transactions. If the end of the fiber was already
    # pending, it comes before the block begins. An error raised after the block does not tell whether the block ran; record that
    # in the block. Give the block its own time limit, because a group waits for it as long as it takes.
    #
    # Ruby's Timeout.timeout, Thread#raise, Fiber#raise and Fiber#kill end the block nevertheless, and so does the end of the
    # scheduler (exit, Interrupt, Thread#kill).
    #
    # A shield in an Enumerator delays what is outside only while the Enumerator's own fiber waits, not another that it has resumed.
    # An ensure clause that an Enumerator makes wait needs a shield around it: otherwise a second ending ends the clause.
    #
    # @return what the block returns
    # @raise what the block raises
    # @raise [ArgumentError] no block given
    def shield(&block)
      raise ArgumentError, "no block given" unless block

      scheduler = Schedulers.current
      Deadline.current&.leave unless scheduler
      Deadline.without do
        # In a fiber without a scheduler, Timeout.timeout ends a deadline's block by Thread#raise.
        next Thread.handle_interrupt(Cancelled => :never, &block) unless scheduler

        Scope.new(scheduler).shield(&block)
      end
    end
  end
end

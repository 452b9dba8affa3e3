# frozen_string_literal: true

require_relative "deadline"
require_relative "scope"

module Reactor
  class << self
    # Runs a block that must not end in the middle: what would end it at the call in which it waits takes effect when it has ended. That
    # holds for {Group::Task#cancel}, for a {Group} that fails or is over its timeout, and for {Reactor.deadline}, if these are around
    # the block. {Reactor.remaining} is nil in it, and fibers that it starts have no deadline.
    #
    #   Reactor.shield do
    #     database.transaction { move(amount, from, to) }
    #   end
    #
    # The block runs in the same fiber, so a Mutex or a transaction that the fiber holds is its own. What was to end it before is raised
    # before the block begins. An error after it does not tell whether it ran: note that in the block. Set the block a limit of its own,
    # because a group waits for it as long as it takes.
    #
    # Ruby's Timeout.timeout and Thread#raise, Fiber#raise and Fiber#kill, and the end of the scheduler (exit, Interrupt, Thread#kill)
    # end the block all the same. In an Enumerator it only holds back what would end the groups and deadlines in that Enumerator.
    #
    # @return what the block returns
    # @raise what the block raises
    # @raise [ArgumentError] without a block
    def shield(&block)
      raise ArgumentError, "no block given" unless block

      scheduler = Schedulers.current
      Deadline.current&.leave unless scheduler
      Deadline.without do
        # Elsewhere, Timeout.timeout ends the block of a deadline by Thread#raise.
        next Thread.handle_interrupt(Scope::Interruption => :never, &block) unless scheduler

        Scope::Shield.new(scheduler).run(&block)
      end
    end
  end
end

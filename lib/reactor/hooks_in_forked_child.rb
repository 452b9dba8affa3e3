# frozen_string_literal: true

require "timeout"
require_relative "clock"
require_relative "durations"

module Reactor
  # If C code forks without Process._fork, the child still has its parent's scheduler. In such a child, the hooks use these
  # methods. They do what Ruby does without a scheduler and leave the parent's descriptors alone.
  #
  # @api private
  module ForkedChildHooks
    # Seconds between checks whether an unblock has ended the wait. The child has no loop that another thread could wake.
    POLL_INTERVAL = 0.01

    class << self
      # @return [Integer, false] the events that have occurred; false when the time limit elapses
      def io_wait(io, events, seconds) = Fiber.blocking { io.wait(events, seconds) } || false

      # Waits until the block returns true or the time limit elapses.
      #
      # @param seconds [Numeric, nil] nil: no limit
      def block(seconds)
        deadline = seconds && Clock.real + seconds
        Fiber.blocking do
          until yield || (deadline && Clock.real >= deadline)
            Kernel.sleep([Clock.left(deadline, Clock.real), POLL_INTERVAL].compact.min)
          end
        end
      end

      # Runs the block with a time limit.
      #
      # @param seconds [Float, nil] 0: elapses at once; nil: no limit
      # @yieldparam seconds the same value
      # @return what the block returns
      # @raise the exception, when the time limit elapses
      def timeout_after(seconds, exception, message)
        expired = Class.new(Exception) # rubocop:disable Lint/InheritException -- no rescue in the block may catch it
        # Timeout.timeout takes 0 for no limit, and its thread would fail on a duration too long to sleep.
        limit = seconds&.clamp(Float::MIN, Durations::FAR)
        Fiber.blocking { Timeout.timeout(limit, expired) { yield(seconds) } }
      rescue expired
        raise(*[exception, message].compact)
      end
    end
  end
end

# frozen_string_literal: true

require "timeout"

module Reactor
  # If C code forks without Process._fork, the child still has its parent's scheduler. Its hooks do here what Ruby does without a
  # scheduler. The parent's descriptors are not touched. Native and portable schedulers share it. The portable one's hooks also do so in
  # a trap handler in the middle of a wait.
  #
  # @api private
  module ForkedChildHooks
    # Seconds between two checks whether an unblock has ended the wait. The child has no loop that another thread could wake.
    POLL_INTERVAL = 0.01

    class << self
      # @return [Integer, false] the events that have come; false when the time is over
      def io_wait(io, events, seconds) = Fiber.blocking { io.wait(events, seconds) } || false

      # Waits until the block is true, or the time is over.
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
      # @param seconds [Float, nil] 0: over at once; nil: no limit
      # @yieldparam seconds as they were given
      # @return what the block returns
      # @raise the exception when the time is over
      def timeout_after(seconds, exception, message)
        expired = Class.new(Exception) # rubocop:disable Lint/InheritException -- no rescue in the block may catch it
        # Timeout.timeout takes 0 for no limit, and its thread ends by an error if it cannot sleep for so long.
        limit = seconds&.clamp(Float::MIN, Durations::FAR)
        Fiber.blocking { Timeout.timeout(limit, expired) { yield(seconds) } }
      rescue expired
        raise(*[exception, message].compact)
      end
    end
  end
end

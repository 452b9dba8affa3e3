# frozen_string_literal: true

require_relative "checks"
require_relative "scope"
require_relative "semaphore"

module Reactor
  # Limits calls to `count` per `per` seconds, from fibers and threads, with or without a scheduler. Callers are served in order
  # of arrival.
  #
  #   requests = Reactor::RateLimit.new(10, per: 1)
  #   urls.each { |url| requests.acquire { fetch(url) } }
  #
  # After a pause, `count` calls pass at once. From then on, a call passes every `per / count` seconds.
  class RateLimit
    # The queue of callers. It is no semaphore of the program, so {Inspection#holders} does not list who is at its head.
    class Line < Semaphore
      def holders = []
    end
    private_constant :Line

    # @param count [Integer]
    # @param per [Numeric] seconds
    # @raise [ArgumentError] count is below 1; per is not positive
    # @raise [TypeError] count is not an Integer; per is not a number
    def initialize(count, per:)
      @count = Checks.count(:count, count)
      seconds = Checks.limit(:per, per)
      raise TypeError, "per must be a number of seconds, not nil" if seconds.nil?
      raise ArgumentError, "per must be more than 0 seconds" unless seconds.positive?

      @interval = Rational(nanoseconds(seconds), @count) # exact; rounding could let only count - 1 calls pass
      @line = Line.new(1)
      @free = 0 # when a full burst of `count` calls is available again
    end

    # Waits until a call may pass, then calls the block, if there is one. A caller that is cancelled or killed, or whose timeout
    # elapses, uses up no call.
    #
    # @param timeout [Numeric, nil] seconds; 0 or less: does not wait; nil: no limit
    # @return what the block returns, or true without a block
    # @raise [DeadlineExceeded] the timeout has elapsed
    # @raise [TypeError] timeout is not a number
    # @raise [RangeError] timeout is NaN
    def acquire(timeout: nil)
      raise DeadlineExceeded, "no call may pass within #{format("%g", timeout)} s" unless try_acquire(timeout: timeout)

      block_given? ? yield : true
    end

    # @param timeout [Numeric, nil] as in {#acquire}
    # @return [Boolean] whether a call may pass
    # @raise [TypeError] timeout is not a number
    # @raise [RangeError] timeout is NaN
    def try_acquire(timeout: 0)
      seconds = Checks.limit(:timeout, timeout)
      finish = now + nanoseconds(seconds) if seconds
      # Only the caller at the head of the line sleeps. The others wait in line.
      @line.try_acquire(timeout: seconds) { pass_by(finish) }
    end

    # @return [Integer] the number of waiting callers
    def waiting = @line.waiting + (@line.available.zero? ? 1 : 0)

    private

    def pass_by(finish)
      while (wait = @free - now - (@count - 1) * @interval).positive?
        wait = [wait.ceil, *(finish - now if finish)].min # rounded up, because the clock has no fractions of a nanosecond
        return false unless wait.positive?

        sleep(wait / 1e9)
      end
      @free = [@free, now].max + @interval
      true
    end

    def nanoseconds(seconds) = ([seconds, Checks::FAR].min * 1e9).ceil

    # @return [Integer] nanoseconds
    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
  end
end

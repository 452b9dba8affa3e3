# frozen_string_literal: true

require_relative "durations"
require_relative "options"
require_relative "semaphore"

module Reactor
  # So many calls in a time, from fibers and threads, with or without a scheduler. Who comes first is first.
  #
  #   requests = Reactor::RateLimit.new(10, per: 1)
  #   urls.each { |url| requests.acquire { fetch(url) } }
  #
  # After a pause, `count` calls pass at once. Then each waits until `per / count` seconds have passed since the one before.
  class RateLimit
    # @param count [Integer]
    # @param per [Numeric] seconds
    # @raise [ArgumentError] count is below 1; per is not above 0
    # @raise [TypeError] count is no Integer; per is no number
    def initialize(count, per:)
      @count = Options.count(:count, count)
      seconds = Options.limit(:per, per)
      raise TypeError, "per is a number of seconds, not nil" if seconds.nil?
      raise ArgumentError, "per must be more than 0 seconds" unless seconds.positive?

      @interval = Rational(nanoseconds(seconds), @count) # exact, so that `count` calls are not one less
      @line = Semaphore.new(1)
      @free = 0 # when as many as count could pass again
    end

    # Waits until the caller may go on, and calls the block, if there is one. One who is cancelled, killed or out of time meanwhile takes
    # no place from the others.
    #
    # @param timeout [Numeric, nil] seconds; 0 or less: does not wait; nil: no limit
    # @return what the block returns, or else true; false if the time is over
    # @raise [TypeError] timeout is no number
    # @raise [ThreadError] in a trap handler
    def acquire(timeout: nil)
      seconds = Options.limit(:timeout, timeout)
      finish = now + nanoseconds(seconds) if seconds
      # Who is first waits for the time, the others for the first one.
      return false unless @line.acquire(timeout: seconds) { pass_by(finish) }

      block_given? ? yield : true
    end

    # @return [Boolean] whether the caller may go on, without a wait
    # @raise [ThreadError] in a trap handler
    def try_acquire = acquire(timeout: 0)

    # @return [Integer] how many wait
    def waiting = @line.waiting + (@line.available.zero? ? 1 : 0)

    private

    def pass_by(finish)
      while (wait = @free - now - (@count - 1) * @interval).positive?
        wait = [wait.ceil, *(finish - now if finish)].min # whole, because no clock shows parts
        return false unless wait.positive?

        sleep(wait / 1e9)
      end
      @free = [@free, now].max + @interval
      true
    end

    def nanoseconds(seconds) = ([seconds, Durations::FAR].min * 1e9).ceil

    # @return [Integer] nanoseconds
    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
  end
end

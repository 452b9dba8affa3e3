# frozen_string_literal: true

module Reactor
  # How long operations take, estimated for each place they come from.
  #
  # An estimate rises quickly and falls slowly: it moves a quarter of the way to a longer duration, and a sixteenth of the way
  # to a shorter one. So an operation that is suddenly expensive blocks the loop once, and the next ones are not taken for
  # cheap. After 10 ms it takes 40 operations of 5 us until the place is cheap again.
  #
  # @api private
  class CostEstimate
    # Seconds that an operation may take inline.
    THRESHOLD = 200e-6

    # How much of the way the estimate moves to a longer duration, and to a shorter one.
    RISE = 1 / 4.0
    FALL = 1 / 16.0

    # Places kept at most. A place is an address of code or a name; addresses change when code is reloaded.
    MAX_PLACES = 4096

    # @param clock [#clock_gettime] what tells the time
    def initialize(clock = Process)
      @clock = clock
      @estimates = {}
    end

    # @param place [Object]
    # @return [Boolean] whether an operation from this place is expected to be cheap; false for an unknown place
    def cheap?(place) = @estimates.fetch(place, Float::INFINITY) <= THRESHOLD

    # Runs the block, an operation from this place, and takes account of how long it took.
    #
    # @param place [Object]
    # @return what the block returns
    # @raise what the block raises
    def measure(place)
      start = @clock.clock_gettime(Process::CLOCK_MONOTONIC)
      yield
    ensure
      seconds = @clock.clock_gettime(Process::CLOCK_MONOTONIC) - start
      estimate = @estimates.fetch(place, seconds)
      @estimates.clear if @estimates.size >= MAX_PLACES
      @estimates[place] = estimate + ((seconds - estimate) * (seconds > estimate ? RISE : FALL))
    end
  end
end

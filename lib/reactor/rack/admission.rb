# frozen_string_literal: true

module Reactor
  class Rack
    # Which requests are served when more come than the process can serve. A fiber goes to the back of the ready queue now and then; the time
    # until its turn is what every request waits. The longer that is, the smaller is the share of requests that are served.
    #
    # @api private
    class Admission
      # Seconds between two measurements.
      INTERVAL = 0.01
      # What the share grows by when the queue is short.
      GROWTH = 1.05
      # What it shrinks to in one step at most, and in all.
      CUT = 0.5
      LEAST = 0.01
      private_constant :INTERVAL, :GROWTH, :CUT, :LEAST

      # @param target [Numeric] seconds that a request may wait for its turn
      def initialize(target)
        @target = target
        @share = 1.0 # of requests that are served
        @credit = 0.0
        @measured_at = 0.0 # infinite while a measurement is under way
      end

      # @return [Boolean] whether one more request is served
      def admit?
        measure if Clock.now - @measured_at >= INTERVAL
        return true if @share >= 1.0

        @credit += @share
        return false if @credit < 1.0

        @credit -= 1.0
        true
      end

      private

      def measure
        began = Clock.now
        @measured_at = Float::INFINITY
        Fiber.schedule do
          sleep 0
          late = Clock.now - began
          @share = (@share * (late > @target ? [@target / late, CUT].max : GROWTH)).clamp(LEAST, 1.0)
        ensure
          @measured_at = Clock.now
        end
      end
    end
    private_constant :Admission
  end
end

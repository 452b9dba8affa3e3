# frozen_string_literal: true

module Reactor
  class Rack
    # Decides which requests to serve when more arrive than the process can serve. Now and then a fiber goes to the back of the
    # ready queue; the time until its turn is how long every request waits. The longer that is, the smaller the share of requests
    # served.
    #
    # @api private
    class Admission
      # Seconds between measurements.
      INTERVAL = 0.01
      # Growth of the share per step while the queue is short.
      GROWTH = 1.05
      # The lowest factor by which the share shrinks in one step, and its lowest value.
      CUT = 0.5
      LEAST = 0.01
      private_constant :INTERVAL, :GROWTH, :CUT, :LEAST

      # @param target [Numeric] seconds that a request may wait for its turn
      def initialize(target)
        @target = target
        @share = 1.0 # of requests served
        @credit = 0.0
        @measured_at = 0.0 # infinite while a measurement is under way
      end

      # @return [Boolean] whether to serve one more request
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

# frozen_string_literal: true

module Reactor
  # The monotonic clock.
  #
  # @api private
  module Clock
    class << self
      # @return [Float] the monotonic clock, in seconds
      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # @return [Float] the monotonic clock in real time, even on a thread whose time is virtual
      def real = clock_gettime(Process::CLOCK_MONOTONIC)

      # @param deadline [Float, nil] a clock reading
      # @param time [Float] the current clock reading
      # @return [Float, nil] seconds until the deadline, at least 0; nil if there is no deadline
      def left(deadline, time) = deadline && [deadline - time, 0].max

      private

      # A private copy of the method, which stays real: {Patches::VirtualTime} patches only the original.
      define_method(:clock_gettime, Process.instance_method(:clock_gettime))
    end
  end
end

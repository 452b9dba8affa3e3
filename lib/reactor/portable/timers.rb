# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # Timers sorted by time, and their clock: monotonic time, or virtual time. Virtual time stands still until it jumps to the
    # next timer ({Testing.virtual_time}).
    class Timers
      # A time, and the entry to queue at that time. Timers with equal times fire in the order in which they were set.
      Timer = Struct.new(:at, :number, :entry)
      private_constant :Timer

      # @return [Rational, nil] seconds of virtual time since it started; nil if time is real
      attr_reader :virtual_now

      # @return [Numeric] real seconds to wait for other events before a jump
      attr_reader :settle

      def initialize
        @sorted = []
        @number = 0
      end

      def size = @sorted.size

      # @return [Timer, nil] the earliest timer
      def first = @sorted.first

      def deadline = @sorted.first&.at

      # @param seconds [Numeric] from now on
      def add(seconds, entry)
        timer = Timer.new(from_now(seconds), @number += 1, entry)
        @sorted.insert(place_of(timer), timer)
        timer
      end

      # Removes the timer, if it is still set.
      def remove(timer)
        return unless timer.number

        place = place_of(timer)
        place = @sorted.index { |other| other.equal?(timer) } unless timer.equal?(@sorted[place]) # moved by a trap handler
        timer.number = nil
        @sorted.delete_at(place) if place
      end

      # Stops the clock.
      def stop_clock(settle)
        @settle = settle
        @holds = 0
        @virtual_now = 0r
      end

      # @param begins [Boolean] true stops the clock from jumping, until a call with false
      def hold(begins) = @holds = begins ? @holds + 1 : [@holds - 1, 0].max

      def may_jump? = !@virtual_now.nil? && @holds.zero? && !@sorted.empty? && deadline.finite?

      def jump = @virtual_now = [@virtual_now, deadline].max

      private

      # @return [Float, Rational] Virtual times are exact to the nanosecond, so sums that should be equal are equal. Sums of
      #   Floats would not be, on a machine that has been up for months.
      def from_now(seconds)
        return Clock.now + seconds unless @virtual_now

        @virtual_now + (seconds.finite? ? seconds.to_r.round(9) : seconds)
      end

      def place_of(timer)
        at, number = timer.at, timer.number
        @sorted.bsearch_index { |other| other.at > at || (other.at == at && other.number >= number) } || @sorted.size
      end
    end
    private_constant :Timers
  end
end

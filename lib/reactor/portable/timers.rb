# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # Timers in the order in which they are due, and the clock that they use: monotonic time, or virtual time, which stands still until
    # it jumps to the next timer ({Testing.virtual_time}).
    class Timers
      # A time on the clock, and the entry that is queued then. Equal times are due in the order in which they were set.
      Timer = Struct.new(:at, :number, :entry)
      private_constant :Timer

      # @return [Rational, nil] seconds of virtual time since it began; nil: time is real
      attr_reader :virtual_now

      # @return [Numeric] real seconds to wait before a jump for an event that is not a timer's
      attr_reader :settle

      def initialize
        @sorted = []
        @number = 0
      end

      def size = @sorted.size

      # @return [Timer, nil] the timer that is due next
      def first = @sorted.first

      def deadline = @sorted.first&.at

      # @param seconds [Numeric] from now on
      def add(seconds, entry)
        timer = Timer.new(from_now(seconds), @number += 1, entry)
        @sorted.insert(place_of(timer), timer)
        timer
      end

      # Does nothing if it has been removed before.
      def remove(timer)
        return unless timer.number

        place = place_of(timer)
        place = @sorted.index { |other| other.equal?(timer) } unless timer.equal?(@sorted[place]) # a trap handler has set another one
        timer.number = nil
        @sorted.delete_at(place) if place
      end

      # Stops the clock.
      def stop_clock(settle)
        @settle = settle
        @holds = 0
        @virtual_now = 0r
      end

      # @param begins [Boolean] from true to false the clock does not jump
      def hold(begins) = @holds = begins ? @holds + 1 : [@holds - 1, 0].max

      def may_jump? = !@virtual_now.nil? && @holds.zero? && !@sorted.empty? && deadline.finite?

      def jump = @virtual_now = [@virtual_now, deadline].max

      private

      # @return [Float, Rational] Virtual time is exact to the nanosecond, so that sums that are equal on paper are equal here. Floats
      #   are not, on a machine that has been up for months.
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

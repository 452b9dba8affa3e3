# frozen_string_literal: true

require "zlib"

module Reactor
  module Testing
    # What happened in a {World}: connections, messages, faults, and the lines of {World#log}. {Testing.simulate} returns it.
    #
    # The same program with the same seed has the same trace in every process, on the same backend. The bytes of a message do not count for
    # that, only how many they are, because TLS draws its own random numbers.
    class Trace
      # - `at`: virtual nanoseconds since the world began
      # - `order`: a number that all choices of the scheduler so far have led to
      Event = Struct.new(:at, :from, :to, :what, :order, :shown) do
        # @return [String] what is compared
        def key = "#{at} #{from} #{to} #{what} #{order}"

        # @return [String] a line of the timeline
        def to_s = format("%12.6f  %-22s %s%s", at / 1e9, to ? "#{from} -> #{to}" : from, what, (" #{shown}" if shown))
      end
      private_constant :Event

      # Events that are kept, unless all are.
      KEPT = 2_000
      # Bytes of a message that are shown.
      SHOWN = 48
      private_constant :KEPT, :SHOWN

      # @return [Integer] events so far
      attr_reader :size

      # @return [Integer] a checksum of all events: equal for equal runs
      attr_reader :digest

      # @api private
      attr_reader :events

      # @param complete [Boolean] whether all events are kept
      # @api private
      def initialize(scheduler, complete)
        @scheduler = scheduler
        @complete = complete
        @events = []
        @size = @digest = 0
      end

      # @param bytes [String, nil] of a message
      # @api private
      def add(from, to, what, bytes = nil)
        event = Event.new(@scheduler.virtual_elapsed, from, to, what, @scheduler.shuffled, bytes && shown(bytes))
        @size += 1
        @digest = Zlib.crc32(event.key, @digest)
        @events << event
        @events.shift(KEPT) if @events.size > 2 * KEPT && !@complete
      end

      # @return [String] the last events, one a line: when, between which hosts, and what
      def timeline(last = KEPT) = @events.last(last).join("\n")

      # @return [String]
      def inspect = "#<#{self.class} #{size} events, digest #{digest}>"

      # @return [String, nil] where another run parts from this one; nil if it does not
      # @api private
      def difference(other)
        return if digest == other.digest && size == other.size

        index = (0..[size, other.size].max).find { |place| events[place]&.key != other.events[place]&.key }
        [self, other].map { |trace| trace.events[index]&.then { |event| "#{event} (order #{event.order})" } || "(ends)" }.join("\n")
      end

      private

      def shown(bytes) = bytes.byteslice(0, SHOWN).b.inspect.then { |text| bytes.bytesize > SHOWN ? "#{text}..." : text }
    end
  end
end

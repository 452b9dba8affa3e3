# frozen_string_literal: true

require "zlib"

module Reactor
  module Testing
    # What happened in a {World}: connections, messages, faults, and the lines of {World#log}. {Testing.simulate} returns it.
    #
    # With the same seed and backend, a program has the same trace in every process. Of TLS, which draws its own random numbers, only
    # the number of bytes counts.
    class Trace
      # - `at`: virtual nanoseconds since the start of the world
      # - `order`: a hash of all choices the scheduler has made so far
      # - `sum`: a checksum of the bytes
      Event = Struct.new(:at, :from, :to, :what, :order, :shown, :sum) do
        # @return [String] the part that is compared
        def key = "#{at} #{from} #{to} #{what} #{order} #{sum}"

        # @return [String] a line of the timeline
        def to_s = format("%12.6f  %-24s %s%s", at / 1e9, to ? "#{from} -> #{to}" : from, what, (" #{shown}" if shown))
      end
      private_constant :Event

      # Number of events to keep, unless all are kept.
      KEPT = 2_000
      # The most bytes of a message to show.
      SHOWN = 48
      private_constant :KEPT, :SHOWN

      # @return [String] valid UTF-8
      # @api private
      def self.text(string) = string.encode(Encoding::UTF_8, invalid: :replace, undef: :replace).scrub

      # @return [Integer] number of events so far
      attr_reader :size

      # @return [Integer] a checksum of all events, which is equal for equal runs
      attr_reader :digest

      # @api private
      attr_reader :events

      # @param complete [Boolean] whether to keep all events
      # @api private
      def initialize(scheduler, complete)
        @scheduler = scheduler
        @complete = complete
        @events = []
        @size = @digest = 0
      end

      # @param bytes [String, nil] of a message, to be compared and shown
      # @api private
      def add(from, to, what, bytes = nil)
        event = Event.new(@scheduler.virtual_elapsed, from, to, what, @scheduler.shuffled, *(bytes && [shown(bytes), Zlib.crc32(bytes)]))
        @size += 1
        @digest = Zlib.crc32(event.key, @digest)
        @events << event
        @events.shift(KEPT) if @events.size > 2 * KEPT && !@complete
      end

      # @return [String] the last events, one per line: when, between which hosts, and what
      def timeline(last = KEPT)
        lines = @events.last(last)
        earlier = @size - lines.size
        lines.unshift("  ... #{earlier} earlier lines: world.trace.timeline shows up to #{KEPT}") if earlier.positive?
        lines.join("\n")
      end

      # @return [String]
      def inspect = "#<#{self.class} #{size} events, digest #{digest}>"

      # @return [String, nil] where another run diverges from this one; nil if it does not
      # @api private
      def difference(other)
        return if digest == other.digest && size == other.size

        index = (0..[size, other.size].max).find { |place| events[place]&.key != other.events[place]&.key }
        [self, other].map { |trace| trace.events[index]&.then { |event| "#{event} (order #{event.order})" } || "(ends)" }.join("\n")
      end

      private

      def shown(bytes)
        text = bytes.byteslice(0, SHOWN).force_encoding(Encoding::UTF_8)
        return "bytes" if text.b.match?(/[\x00-\x08\x0e-\x1f\x7f]/n)

        bytes.bytesize > SHOWN ? "#{text.inspect}..." : text.inspect
      end
    end
  end
end

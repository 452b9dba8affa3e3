# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # The waits for each IO, and what IO.select reports for them.
    class Descriptors
      EVENTS = [IO::READABLE, IO::WRITABLE, IO::PRIORITY].freeze
      private_constant :EVENTS

      class << self
        # @param masks [Hash{IO => Integer}]
        # @return [Array(Array<IO>, Array<IO>, Array<IO>)] as IO.select takes them
        def lists(masks) = EVENTS.map { |event| masks.filter_map { |io, mask| io if mask.anybits?(event) } }

        # @return [Integer, nil] those of the events that have occurred
        def ready_now(io, events)
          found = Fiber.blocking { VM.select_now(*lists({ io => events })) }
          found && EVENTS.zip(found).sum { |event, ios| ios.empty? ? 0 : event }
        rescue Errno::EBADF
          raise unless io.closed? # by another thread, after IO.select had checked

          raise IOError, "stream closed in another thread"
        end
      end

      def initialize
        @waits = EVENTS.to_h { |event| [event, {}.compare_by_identity] } # event => IO => its waits => true
        @sleep = VM::WINDOWS ? Pauses.new : Sleep.new
      end

      def empty? = @waits.values.all?(&:empty?)

      # @param wait [Wait, Watch] for its masks
      def add(wait)
        each_of(wait.masks) { |waits_of, io| (waits_of[io] ||= {}.compare_by_identity)[wait] = true }
      end

      def remove(wait)
        each_of(wait.masks) do |waits_of, io|
          waits = waits_of[io] or next
          waits.delete(wait)
          waits_of.delete(io) if waits.empty?
        end
      end

      # @return [Array<Wait, Watch>]
      def waits_for(io) = @waits.values.flat_map { |waits_of| waits_of[io]&.keys || [] }.uniq(&:object_id)

      # Polls the kernel, and adds the events to the waits.
      #
      # @param timeout [Numeric, nil] seconds the thread may sleep
      # @return [Array<Array(Wait|Watch, Exception)>, nil] each wait with an event, along with the error if IO.select rejects the
      #   IO; nil when the timeout elapses
      def select(timeout)
        asked = @waits.values.map(&:keys)
        found = @sleep.select(asked, timeout) or return
        EVENTS.zip(found).flat_map { |event, ios| ios.flat_map { |io| ready_waits(event, io) } }
      rescue IOError, FrozenError, Errno::EBADF
        refused = refused_waits
        # If a trap handler ended the last wait for an IO in the middle of the poll and closed the IO, the next poll will not
        # include it.
        raise if refused.empty? && (@sleep.closed? || asked&.flatten&.none?(&:closed?)) # raised by another thread

        refused
      end

      # Ends a sleep. Any thread may call this.
      def wake = @sleep.wake

      def close = @sleep.close

      private

      def each_of(masks)
        masks.each do |io, mask|
          @waits.each { |event, waits_of| yield waits_of, io if mask.anybits?(event) }
        end
      end

      def ready_waits(event, io)
        @waits[event].fetch(io, {}).keys.each { |wait| wait.events |= event }.map { |wait| [wait] }
      end

      # An IO that is closed, frozen, or not open in this direction raises in the fibers that wait for it. Such an IO is left out
      # of further polls, because IO.select would raise each time until the fibers have ended their waits.
      def refused_waits
        @waits.flat_map do |event, waits_of|
          waits_of.keys.flat_map do |io|
            Descriptors.ready_now(io, event)
            []
          rescue IOError, FrozenError, SystemCallError => error
            waits_of.delete(io).keys.map { |wait| [wait, error] }
          end
        end
      end
    end
    private_constant :Descriptors
  end
end

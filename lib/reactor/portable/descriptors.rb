# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # Which waits there are for which IO objects, and what IO.select says of these.
    class Descriptors
      EVENTS = [IO::READABLE, IO::WRITABLE, IO::PRIORITY].freeze
      private_constant :EVENTS

      class << self
        # @param masks [Hash{IO => Integer}]
        # @return [Array(Array<IO>, Array<IO>, Array<IO>)] as IO.select takes them
        def lists(masks) = EVENTS.map { |event| masks.filter_map { |io, mask| io if mask.anybits?(event) } }

        # @return [Integer, nil] those of the events that have come
        def ready_now(io, events)
          found = Fiber.blocking { VM.select_now(*lists({ io => events })) }
          found && EVENTS.zip(found).sum { |event, ios| ios.empty? ? 0 : event }
        rescue Errno::EBADF
          raise unless io.closed? # by another thread, after IO.select had looked whether it is

          raise IOError, "stream closed in another thread"
        end
      end

      def initialize
        @waits = EVENTS.to_h { |event| [event, {}.compare_by_identity] } # event => IO => the waits for it => true
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

      # Asks the kernel, and adds what has come to the events of the waits.
      #
      # @param timeout [Numeric, nil] seconds that the thread may sleep
      # @return [Array<Array(Wait|Watch, Exception)>, nil] each of the waits for which something has come, and the error if IO.select does not
      #   take the IO; nil when the time is over
      def select(timeout)
        asked = @waits.values.map(&:keys)
        found = @sleep.select(asked, timeout) or return
        EVENTS.zip(found).flat_map { |event, ios| ios.flat_map { |io| ready_waits(event, io) } }
      rescue IOError, FrozenError, Errno::EBADF
        refused = refused_waits
        # If a trap handler has ended the last wait for an IO and closed it in the middle of the poll, the next one does not ask for it.
        raise if refused.empty? && (@sleep.closed? || asked&.flatten&.none?(&:closed?)) # raised by another thread

        refused
      end

      # Ends a sleep. Any thread may call it.
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

      # If fibers wait for an IO that is closed, frozen, or not open in this direction, the error is theirs. IO.select is not asked
      # again for the IO, because it would raise each time until the fibers have left.
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

# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # A time on the clock, and the entry that is queued then.
    Timer = Struct.new(:at, :number, :slot, :entry)
    private_constant :Timer

    # Timers by their time: a binary heap in which each timer knows its place. So a cancelled timer is removed in O(log n) and
    # leaves nothing behind.
    class Timers
      def initialize
        @heap = []
        @number = 0
      end

      def size = @heap.size

      # @return [Timer, nil] the timer that is due next
      def first = @heap.first

      def deadline = @heap.first&.at

      # @param at [Float, Rational] seconds on the scheduler's clock (`from_now`)
      def add(at, entry)
        timer = Timer.new(at, @number += 1, @heap.size, entry)
        @heap.push(timer)
        rise(timer)
        timer
      end

      # Does nothing if it has been removed before.
      def remove(timer)
        slot = timer.slot or return
        timer.slot = nil
        last = @heap.pop
        return if last.equal?(timer)

        place(last, slot)
        sink(last)
        rise(last)
      end

      private

      def place(timer, slot)
        @heap[slot] = timer
        timer.slot = slot
      end

      def rise(timer)
        while timer.slot.positive? && before?(timer, parent = @heap[(timer.slot - 1) / 2])
          slot = parent.slot
          place(parent, timer.slot)
          place(timer, slot)
        end
      end

      def sink(timer)
        while (child = earlier_child(timer.slot)) && before?(child, timer)
          slot = child.slot
          place(child, timer.slot)
          place(timer, slot)
        end
      end

      def earlier_child(slot)
        left, right = @heap[2 * slot + 1], @heap[2 * slot + 2]
        right && before?(right, left) ? right : left
      end

      # Equal times in the order they were set.
      def before?(one, other)
        one.at < other.at || (one.at == other.at && one.number < other.number)
      end
    end
    private_constant :Timers
  end
end

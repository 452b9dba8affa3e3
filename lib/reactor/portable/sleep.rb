# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # IO.select, and a pipe through which another thread can end it.
    class Sleep
      def initialize
        @reader, @writer = IO.pipe
      end

      # @param lists [Array(Array<IO>, Array<IO>, Array<IO>)]
      # @param timeout [Numeric, nil] seconds
      # @return [Array(Array<IO>, Array<IO>, Array<IO>), nil] nil when the timeout elapses
      def select(lists, timeout)
        readables, *others = lists
        found = IO.select([@reader, *readables], *others, timeout) or return
        @reader.read_nonblock(4096, exception: false) if found.first.delete(@reader)
        found
      end

      # Ends a sleep. Any thread may call this.
      def wake = @writer.write_nonblock(".", exception: false)

      def closed? = @reader.closed?

      def close
        @writer.close
      ensure
        @reader.close # in ensure, in case the thread is killed during the other close
      end
    end

    # The counterpart for Windows, where IO.select checks all sockets every 10 ms and sleeps in between: no descriptor can end
    # such a sleep (`rb_w32_select_with_thread`). Here IO.select only checks, and a queue ends the pauses, which grow from 1 to 10
    # ms.
    class Pauses
      PAUSES = (0.001..0.01)
      # The pause without descriptors. A push in a trap handler, or while one runs, does not end a Queue#pop with a timeout
      # (`sleep_hrtime_until`), and a pop without a timeout could look like a deadlock.
      IDLE_PAUSE = 0.1
      private_constant :PAUSES, :IDLE_PAUSE

      def initialize
        @wakes = Thread::Queue.new
      end

      def select(lists, timeout)
        deadline = timeout && (Clock.real + timeout)
        idle = lists.all?(&:empty?)
        pause = idle ? IDLE_PAUSE : PAUSES.begin
        loop do
          found = VM.select_now(*lists) unless idle
          left = Clock.left(deadline, Clock.real)
          return found if found || left&.zero?
          return lists.map { [] } if woken?([pause, left].compact.min)

          pause = [2 * pause, PAUSES.end].min unless idle
        end
      end

      def wake = (@wakes << true if @wakes.empty?)

      def closed? = @wakes.closed?

      def close = @wakes.close

      private

      # The reason for a wake-up is recorded before the wake-up. So the caller will see the reason, even if the wake-up is dropped
      # here.
      def woken?(seconds) = @wakes.pop(timeout: seconds) && @wakes.clear
    end
    private_constant :Sleep, :Pauses
  end
end

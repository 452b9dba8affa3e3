# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # IO.select, and a pipe by which another thread ends it.
    class Sleep
      def initialize
        @reader, @writer = IO.pipe
      end

      # @param lists [Array(Array<IO>, Array<IO>, Array<IO>)]
      # @param timeout [Numeric, nil] seconds
      # @return [Array(Array<IO>, Array<IO>, Array<IO>), nil] nil when the time is over
      def select(lists, timeout)
        readables, *others = lists
        found = IO.select([@reader, *readables], *others, timeout) or return
        @reader.read_nonblock(4096, exception: false) if found.first.delete(@reader)
        found
      end

      # Any thread may call it.
      def wake = @writer.write_nonblock(".", exception: false)

      def closed? = @reader.closed?

      def close
        @writer.close
      ensure
        @reader.close # also if the thread is killed here
      end
    end

    # The same for Windows, where IO.select looks at everything each 10 ms and sleeps in between, so that no descriptor can end it
    # (`rb_w32_select_with_thread`). Here it only looks, and a queue ends the pauses, which grow from 1 to 10 ms.
    class Pauses
      PAUSES = (0.001..0.01)
      # Without descriptors. A push in a trap handler, or meanwhile, does not end a Queue#pop with a limit (`sleep_hrtime_until`), and one
      # without a limit may look like a deadlock.
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

      # What a wake-up is for was noted before it. So one that is dropped here has been seen when the caller goes on.
      def woken?(seconds) = @wakes.pop(timeout: seconds) && @wakes.clear
    end
    private_constant :Sleep, :Pauses
  end
end

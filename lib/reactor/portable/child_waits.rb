# frozen_string_literal: true

require_relative "../clock"

module Reactor
  class PortableScheduler
    # How the scheduler waits for child processes: by asking again and again. {Processes} has the hook.
    module ChildWaits
      private

      # Waits for a moment until Process.wait may have an answer. The longer the wait has taken, the longer is the moment. (A
      # thread in Process.wait would take the child, and lose it if the wait is interrupted.)
      #
      # @param since [Float] when the wait began, on the real clock
      def await_child(_pid, _flags, since)
        waited = Clock.real - since
        moment = (waited / 4.0).clamp(0.001, 0.05)
        # Children live in real time, so they get `settle` seconds of it before the clock may jump. After that the moment is
        # longer than it takes to be idle, or virtual time would never go on.
        moment = 2 * @settle + 0.005 if @virtual_now && waited > @settle
        @virtual_now ? sleep_for_real(moment) : kernel_sleep(moment)
      end

      def sleep_for_real(seconds)
        thread = Thread.new { sleep seconds }
        thread.join
      ensure
        thread&.kill
      end
    end
    private_constant :ChildWaits
  end
end

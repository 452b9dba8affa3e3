# frozen_string_literal: true

module Reactor
  # Detects that all fibers wait for one another. Ruby detects that only for threads.
  #
  # @api private
  module Deadlock
    class << self
      # @return [Boolean] whether no other thread of this Ractor can wake a fiber
      def other_threads_idle? = Thread.list.all? { |thread| thread.equal?(Thread.current) || idle?(thread) }

      # @param thread [Thread]
      # @return [Boolean] whether the thread only observes, or cannot wake a fiber before a thread of this Ractor wakes it
      def idle?(thread)
        return true if thread.thread_variable?(:reactor_bystander)

        thread.inspect.end_with?(VM::SLEEPS_FOREVER) && !awaits_ractor?(thread) && !Internal.woken?(thread)
      end

      private

      # Whether another Ractor may end the thread's wait. A thread that waits for another thread has the same status.
      def awaits_ractor?(thread)
        frame = thread.backtrace_locations(0, 1)&.first
        !frame.nil? && (frame.path == VM::RACTOR_PATH || frame.label.match?(VM::RACTOR_LABEL))
      end
    end

    private

    # The extension calls this when, for a while, all fibers have been waiting for an unblock and nothing else. It is a deadlock if
    # no fiber merely sleeps and no other thread can wake a fiber, because each of these threads waits for another thread, too.
    #
    # @return [String, nil] the message of Ruby's own "No live threads left. Deadlock?"; nil if there is no deadlock, or if the
    #   program has set Thread.ignore_deadlock
    def deadlock_message
      return if Thread.ignore_deadlock || !Deadlock.other_threads_idle?

      statuses = fibers
      waiting = statuses.select { |status| status.state == :waiting }
      return if waiting.empty? || statuses.any? { |status| status.state == :ready } || !waiting.all? { |status| lost?(status) }

      "No live threads left. Deadlock?\n#{dump}"
    end

    # Kernel#sleep does not wait for another thread. ConditionVariable#wait, which calls the same hook, does.
    def lost?(status)
      status.forever && (status.hook == :block || status.backtrace.first(4).any? { |line| line.match?(VM::CONDITION_WAIT) })
    end
  end
end

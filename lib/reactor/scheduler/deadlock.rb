# frozen_string_literal: true

module Reactor
  # How a scheduler finds that all fibers wait for one another. Ruby itself finds that of threads, and knows nothing of fibers.
  #
  # @api private
  module Deadlock
    class << self
      # @return [Boolean] whether no other thread of this Ractor can wake a fiber
      def other_threads_idle? = Thread.list.all? { |thread| thread.equal?(Thread.current) || idle?(thread) }

      # @param thread [Thread]
      # @return [Boolean] whether the thread wakes no fiber unless a thread of this Ractor wakes it, or whether it watches
      def idle?(thread)
        return true if thread.thread_variable?(:reactor_bystander)

        thread.inspect.end_with?(VM::SLEEPS_FOREVER) && !awaits_ractor?(thread) && !Internal.woken?(thread)
      end

      private

      # Whether another Ractor may end the thread's wait. Its status is that of a thread that waits for another thread.
      def awaits_ractor?(thread)
        frame = thread.backtrace_locations(0, 1)&.first
        !frame.nil? && (frame.path == VM::RACTOR_PATH || frame.label.match?(VM::RACTOR_LABEL))
      end
    end

    private

    # The native and the portable scheduler ask this when all fibers have waited for an unblock, and for nothing else, for a
    # while. There is a deadlock if no other thread can wake a fiber, because each waits for another thread as well, and no
    # fiber just sleeps.
    #
    # @return [String, nil] the message of Ruby's own "No live threads left. Deadlock?"; nil if there is none, or if the program
    #   has set Thread.ignore_deadlock
    def deadlock_message
      return if Thread.ignore_deadlock || !Deadlock.other_threads_idle?

      statuses = fibers
      waiting = statuses.select { |status| status.state == :waiting }
      return if waiting.empty? || statuses.any? { |status| status.state == :ready } || !waiting.all? { |status| lost?(status) }

      "No live threads left. Deadlock?\n#{dump}"
    end

    # Kernel#sleep waits for no other thread. ConditionVariable#wait, which calls the same hook, does.
    def lost?(status)
      status.forever && (status.hook == :block || status.backtrace.first(4).any? { |line| line.match?(VM::CONDITION_WAIT) })
    end
  end
end

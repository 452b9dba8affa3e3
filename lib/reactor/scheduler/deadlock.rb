# frozen_string_literal: true

module Reactor
  # Detects that all fibers wait for one another. Ruby detects that only for threads.
  #
  # @api private
  module Deadlock
    class << self
      # @return [Boolean] whether no other thread of this Ractor can wake a fiber; of M:N threads, this is a guess
      def other_threads_idle? = other_threads.all? { |thread| idle?(thread) }

      # @return [Boolean] whether it is known what other threads wait for
      def certain?
        other_threads.empty? || (!VM::MN_THREADS && Ractor.current == Ractor.main)
      end

      # @param thread [Thread]
      # @return [Boolean] whether the thread cannot wake a fiber before a thread of this Ractor wakes it
      def idle?(thread)
        Thread.instance_method(:inspect).bind_call(thread).end_with?(VM::SLEEPS_FOREVER) && !awaits_ractor?(thread) && !Internal.woken?(thread)
      end

      private

      # Without threads that only observe.
      def other_threads = Thread.list.reject { |thread| thread.equal?(Thread.current) || thread.thread_variable?(:reactor_bystander) }

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
      return if Thread.ignore_deadlock || !Deadlock.certain? || !Deadlock.other_threads_idle?

      rows = FiberStatus.rows(self)
      waiting = rows.select { |row| row.state == :waiting }
      lost = waiting.all? { |row| row.forever && row.hook == :block } # Kernel#sleep waits for no other thread
      return if waiting.empty? || !lost || rows.any? { |row| row.state == :ready }

      "No live threads left. Deadlock?\n#{dump_or_error}"
    end

    def dump_or_error
      dump
    rescue StandardError, ScriptError => error # of a method that the program has overridden
      "no dump: #{error.full_message(highlight: false)}"
    end
  end
end

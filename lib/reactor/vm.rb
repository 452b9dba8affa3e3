# frozen_string_literal: true

module Reactor
  # Facts of the VM that no constant and no method of Ruby's has.
  #
  # @api private
  module VM
    # The class of Ruby's "No live threads left. Deadlock?". It has a name and no constant.
    FATAL = ObjectSpace.each_object(Class).find { |klass| klass.name == "fatal" }

    # The version of the scheduler interface that sets the order and the meaning of the arguments of io_read and io_write:
    # 4 from Ruby 4.1 on, 3 before.
    BUFFER_CONTRACT = defined?(IO::Buffer::VERSION) && IO::Buffer::VERSION >= 3 ? 4 : 3

    # The methods of IO that close a descriptor, and the hooks in which they wait.
    CLOSING = %w[close close_read close_write reopen].freeze
    HOOKS_OF_CLOSE = %w[block kernel_sleep].freeze

    # How the labels of the methods begin that collect garbage.
    COLLECTORS = ["GC.", "GC#", "ObjectSpace.garbage_collect"].freeze
    private_constant :CLOSING, :HOOKS_OF_CLOSE, :COLLECTORS

    class << self
      # Reports an error that ended a fiber, as Ruby reports one that ends a thread.
      #
      # @param fiber [Fiber]
      # @param error [Exception]
      # @return [void]
      def report_error(fiber, error)
        return unless Thread.current.report_on_exception

        Fiber.blocking { $stderr.write("#{fiber.inspect} terminated with exception (report_on_exception is true):\n#{error.full_message}") }
      rescue IOError, SystemCallError
        nil # $stderr is closed or broken
      end

      # Mutex#unlock removes the fiber that it wakes from the mutex's waiting list. If that fiber raises before it has locked,
      # the mutex is free and the next fiber in the list is not told: an unlock tells it.
      #
      # @param blocker what the fiber waited for
      # @return [void]
      def hand_on_mutex(blocker)
        blocker.unlock if Reactor.visible?(blocker) && Thread::Mutex === blocker && blocker.try_lock
      end

      # Whether a fiber of the portable scheduler waits for the other threads that use an IO which it closes. An exception must
      # not end that wait. Up to Ruby 3.4 the VM keeps the threads in a list on the stack of the method that closes, and would go
      # on to use it. In 4.0 the fiber would keep the mutex that they need to leave.
      #
      # @param fiber [Fiber] one that waits
      # @return [Boolean]
      def closes_io?(fiber)
        return false unless Fiber === fiber

        frames = fiber.backtrace_locations || []
        hook = frames.index { |frame| HOOKS_OF_CLOSE.include?(frame.base_label) }
        caller = frames[hook + 1] if hook
        !caller.nil? && CLOSING.include?(caller.base_label)
      end

      # Whether a fiber of the portable scheduler waits in a finalizer that a full collection runs at once (GC.start and the like).
      # The VM reports what is raised there, and drops it.
      #
      # @param fiber [Fiber] one that waits
      # @param limit [Integer, nil] only if fewer blocks of timeouts have begun in the finalizer; nil: however many
      # @return [Boolean]
      def finalizes?(fiber, limit = nil)
        blocks = 0
        frames = fiber.backtrace_locations || []
        frames.each_with_index do |frame, place|
          return true if collects?(frame, frames[place + 1])

          blocks += 1 if frame.base_label == "run_interruptible"
          return false if blocks == limit
        end
        false
      end

      private

      # From Ruby 4.0 on, a method of the VM's own has the place of its caller.
      def collects?(frame, caller)
        frame.path == "<internal:gc>" ||
          (frame.label.start_with?(*COLLECTORS) && caller && [caller.path, caller.lineno] == [frame.path, frame.lineno])
      end
    end
  end
end

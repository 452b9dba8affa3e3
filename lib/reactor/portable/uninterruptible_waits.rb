# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # Waits of Ruby's methods that no exception may end. The frames of the fiber tell which method waits.
    module UninterruptibleWaits
      # The methods of IO that close a descriptor, and the hooks in which they wait.
      CLOSING = %w[close close_read close_write reopen].freeze
      HOOKS_OF_CLOSE = %w[block kernel_sleep].freeze

      # How the labels of the methods begin that collect garbage.
      COLLECTORS = ["GC.", "GC#", "ObjectSpace.garbage_collect"].freeze
      private_constant :CLOSING, :HOOKS_OF_CLOSE, :COLLECTORS

      class << self
        # Whether a fiber waits for the other threads that use an IO which it closes. An exception must
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

        # Whether a fiber waits in a finalizer that a full collection runs at once (GC.start and the like).
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
    private_constant :UninterruptibleWaits
  end
end

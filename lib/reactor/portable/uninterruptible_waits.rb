# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # Waits of Ruby's methods that no exception may end. The frames of the fiber tell which method waits.
    module UninterruptibleWaits
      # The methods of IO that close a descriptor, and the hooks in which they wait.
      CLOSING = %w[close close_read close_write reopen].freeze
      HOOKS_OF_CLOSE = %w[block kernel_sleep].freeze
      private_constant :CLOSING, :HOOKS_OF_CLOSE

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
      end
    end
    private_constant :UninterruptibleWaits
  end
end

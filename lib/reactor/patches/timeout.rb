# frozen_string_literal: true

require "timeout"
require_relative "../schedulers"

module Reactor
  module Patches
    # Some versions of the timeout library (0.4.1, and 0.6.0 of Ruby 4.0.0 and 4.0.1) hand Timeout::Error to a scheduler, and a bare
    # rescue in the block would swallow it. Without a scheduler every version raises an exception of its own in the block, and
    # turns it into Timeout::Error outside. Here the scheduler is given that exception of the library's own instead of Timeout::Error.
    # Libraries before 0.4 have no method for that, and are left alone. In a forked child there is no scheduler
    # ({Patches::ForkedChild}), so the patch does nothing.
    #
    # @api private
    module TimeoutException
      # Prepended to Timeout's singleton class.
      module Module
        def timeout(seconds, exception = nil, message = nil, &block)
          return super if exception || seconds.nil? || !Fiber.current_scheduler.is_a?(Schedulers::Member)
          return super unless ::Timeout::Error.respond_to?(:handle_timeout)

          ::Timeout::Error.handle_timeout(message || "execution expired") { |own| super(seconds, own, message, &block) }
        end
      end

      # Prepended to Timeout, for the classes that include it.
      module Method
        private

        def timeout(...) = ::Timeout.timeout(...)
      end
    end
  end
end

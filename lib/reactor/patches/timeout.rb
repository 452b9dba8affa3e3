# frozen_string_literal: true

require "timeout"

module Reactor
  module Patches
    # Some versions of the timeout library (those of Ruby 3.3, of early releases of 3.4, and of 4.0.0 and 4.0.1) hand Timeout::Error
    # to a scheduler, and a bare rescue in the block would swallow it. Without a scheduler every version raises an exception of its
    # own in the block, and turns it into Timeout::Error outside. Here the scheduler is given that exception of the library's own
    # instead of Timeout::Error. Libraries before 0.4 have no method for that, and are left alone. In a forked child there is no
    # scheduler ({Patches::ForkedChild}), so the patch does nothing.
    #
    # @api private
    module TimeoutException
      # A scheduler for one call of `timeout_after`: notes the exception that the library hands to a scheduler.
      class Probe
        attr_reader :exception

        def timeout_after(_seconds, exception, _message = nil) = @exception = exception

        # Fiber.set_scheduler wants these methods. Nothing waits here.
        %i[block unblock kernel_sleep io_wait fiber_interrupt].each { |name| define_method(name) { |*| nil } }
      end
      private_constant :Probe

      class << self
        # Asks the library what it hands to a scheduler, because libraries with the same version number differ.
        #
        # @return [Boolean] whether it is Timeout::Error, and the library can do otherwise
        def needed?
          return false unless ::Timeout::Error.respond_to?(:handle_timeout)

          probe = Probe.new
          Fiber.scheduler ? Thread.new { ask(probe) }.join : ask(probe)
          probe.exception.equal?(::Timeout::Error)
        end

        # On a thread without a scheduler, because a second one would close the first.
        private def ask(probe)
          Fiber.set_scheduler(probe)
          Fiber.new { ::Timeout.timeout(1) { nil } }.resume
        rescue StandardError
          nil # another library's method, in the place of this one
        ensure
          Fiber.set_scheduler(nil)
        end
      end

      # Prepended to Timeout's singleton class.
      module Module
        def timeout(seconds, exception = nil, message = nil, &block)
          return super if exception || seconds.nil? || !Fiber.current_scheduler.is_a?(Schedulers::Member)

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

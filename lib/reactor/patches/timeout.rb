# frozen_string_literal: true

require "timeout"

module Reactor
  module Patches
    # Of Timeout's singleton class, and of Timeout, for the classes that include it. Without a scheduler, `timeout` raises a private
    # exception inside the block, and converts it to Timeout::Error outside. But some versions of the timeout library (those of Ruby
    # 3.3, early releases of 3.4, 4.0.0 and 4.0.1) hand Timeout::Error itself to a scheduler, so that a bare rescue in the block
    # swallows it. This patch hands the private exception to the scheduler instead. Libraries before 0.4 have no method for that,
    # and are left alone.
    #
    # @api private
    module TimeoutException
      # A scheduler for a single call of `timeout_after`: records the exception that the library hands to a scheduler.
      class Probe
        attr_reader :exception

        def timeout_after(_seconds, exception, _message = nil, &) = @exception = exception

        # Fiber.set_scheduler requires these methods. Nothing waits here.
        %i[block unblock kernel_sleep io_wait fiber_interrupt].each { |name| define_method(name) { |*| nil } }
      end
      private_constant :Probe

      class << self
        # Finds out by a trial which exception the library hands to a scheduler, because libraries with the same version number
        # differ.
        #
        # @return [Boolean] whether it is Timeout::Error, and the library has a method by which this can be avoided
        def needed?
          return false unless ::Timeout::Error.respond_to?(:handle_timeout)

          probe = Probe.new
          Fiber.scheduler ? Thread.new { ask(probe) }.join : ask(probe)
          probe.exception.equal?(::Timeout::Error)
        end

        # Runs on a thread without a scheduler, because setting a second scheduler would close the first.
        private def ask(probe)
          Fiber.set_scheduler(probe)
          Fiber.new { ::Timeout.timeout(1) { nil } }.resume
        rescue StandardError
          nil # another library has replaced the method
        ensure
          Fiber.set_scheduler(nil)
        end
      end

      def timeout(seconds, exception = nil, message = nil, &block)
        if exception || seconds.nil? || !Fiber.current_scheduler.is_a?(Schedulers::Member)
          return reactor_timeout_timeout(seconds, exception, message, &block)
        end

        ::Timeout::Error.handle_timeout(message || "execution expired") { |own| reactor_timeout_timeout(seconds, own, message, &block) }
      end
    end
  end
end

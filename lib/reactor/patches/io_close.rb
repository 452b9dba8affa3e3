# frozen_string_literal: true

require_relative "../schedulers"

module Reactor
  module Patches
    # Prepended to IO. Ruby 3.3 and 3.4 do not tell a scheduler that an IO is being closed, and 4.0 does not tell it of fibers
    # in IO.select: those fibers would wait forever, or for the descriptor that gets the number next. So IO#close first tells
    # the schedulers of its Ractor. They raise IOError ("stream closed in another thread") in the fibers that wait for this
    # object. That takes one look-up for each scheduler, and does not depend on fibers that wait for other objects. On Ruby 4.0 the VM
    # then interrupts the same fibers; these interrupts are dropped.
    #
    # @api private
    module IOClose
      # From Ruby 4.0 on the VM waits until the fibers that it interrupts have left the IO. If the closer is the blocking
      # fiber of their own thread, the interrupted fibers could not run. So they run before the close.
      VM_WAITS_FOR_USERS = RUBY_VERSION >= "4.0"
      private_constant :VM_WAITS_FOR_USERS

      # @return [nil]
      def close
        answer = Internal.announce_close(self)
        IOClose.complete(self, answer) if answer
        super
      end

      # Waits until the IO can be closed.
      #
      # @param answer [Symbol] of {Reactor::Internal.announce_close}
      # @api private
      def self.complete(io, answer)
        notify_schedulers(io) { |scheduler| scheduler.prepare_close(io) } if answer == :in_use
        yield_to_interrupted
      end

      # Lets the fibers go that the schedulers have interrupted.
      #
      # @api private
      def self.yield_to_interrupted
        return unless VM_WAITS_FOR_USERS && Fiber.current.blocking?

        Fiber.scheduler&.yield # they are queued ahead of this one
      end

      # @param io [IO]
      # @yield [scheduler] announces a change of the IO, and returns the scheduler's answer
      # @return [Symbol, nil] :interrupted if a fiber waits for it
      # @api private
      def self.notify_schedulers(io)
        interrupted = nil
        Schedulers.each do |scheduler|
          await_unused(scheduler, io) while (answer = yield(scheduler)) == :in_use
          interrupted ||= answer
        end
        interrupted
      end

      # Waits until no worker uses the descriptor for a fiber of a scheduler on another thread. By a queue, because a closer
      # that is a fiber of a scheduler is parked then, and a closer that is not waits in its thread.
      def self.await_unused(scheduler, io)
        queue = Thread::Queue.new
        queue.pop if scheduler.push_when_unused(io, queue)
      end
      private_class_method :await_unused
    end
  end
end

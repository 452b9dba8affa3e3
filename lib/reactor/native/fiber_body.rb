# frozen_string_literal: true

module Reactor
  # The native scheduler: its hooks are written in Rust. {PortableScheduler} has the same hooks in Ruby, and its documentation of them
  # holds for both. {Scheduler} inherits from this class if the native library is loaded.
  class NativeScheduler
    # The body of every fiber of a native scheduler: it runs the block, and reports how the block ended.
    #
    # It is Ruby code, because a block that C calls takes 1.3 kB of frames on the machine stack. Every parked fiber would keep
    # them, and each garbage collection would scan them.
    #
    # `ended`, a function of the extension, is called however the block ends: by an exception, or by what no rescue sees
    # (Fiber#kill, Thread#kill, throw). No other code can call it, and the VM finds it without looking its name up in each fiber.
    #
    # @api private
    module FiberBody
      BODY = Ractor.make_shareable(
        proc do |scheduler, block, arguments|
          arguments ? block.call(*arguments) : block.call
        rescue Exception => error # rubocop:disable Lint/RescueException -- the scheduler decides what becomes of it
          nil
        ensure
          raise error if ended(scheduler, error)
        end
      )
    end
    private_constant :FiberBody

    define_fiber_body(FiberBody::BODY)
    private_class_method :define_fiber_body
  end
end

# frozen_string_literal: true

module Reactor
  class NativeScheduler
    # What every fiber of a native scheduler runs: its block, and the report of how that ended.
    #
    # It is Ruby code, because a block that C calls takes 1.3 kB of frames on the machine stack. Every parked fiber would keep
    # them, and each garbage collection would scan them.
    #
    # `ended` is called however the block ends: by an exception, or by what no rescue sees (Fiber#kill, Thread#kill, throw).
    #
    # @api private
    BODY = Ractor.make_shareable(
      proc do |scheduler, block, arguments|
        arguments ? block.call(*arguments) : block.call
      rescue Exception => error # rubocop:disable Lint/RescueException -- the scheduler decides what becomes of it
        nil
      ensure
        raise error if scheduler.__send__(:ended, error)
      end
    )
    private_constant :BODY

    run_by(BODY)
    private_class_method :run_by
  end
end

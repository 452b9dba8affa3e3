# frozen_string_literal: true

module Reactor
  class Selector
    # What every fiber of a native scheduler runs: its block, and the account of how that ended.
    #
    # It is Ruby code for what it leaves out: a block that C calls stands on 1.3 kB of frames of the machine stack, which
    # every parked fiber would keep, and each garbage collection look through.
    #
    # Whatever ends the block, the account is made: by an exception, or by what no rescue sees (Fiber#kill, Thread#kill, throw).
    # @api private
    BODY = Ractor.make_shareable(
      proc do |scheduler, block, arguments|
        arguments ? block.call(*arguments) : block.call
      rescue Exception => error # rubocop:disable Lint/RescueException -- for the scheduler to tell
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

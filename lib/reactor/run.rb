# frozen_string_literal: true

module Reactor
  # How a block runs as the main fiber of a scheduler, which ends with it.
  #
  # @api private
  module Running
    # Ends the run after an error of the block. Not a StandardError: the scheduler then cancels all other fibers.
    Failure = Class.new(Exception)
    private_constant :Failure

    class << self
      # Sets the scheduler on this thread, runs the block in a fiber, and then all fibers to their end. Whatever ends the run, the
      # thread has no scheduler afterwards.
      #
      # @param scheduler [Lifecycle]
      # @return what the block returns
      # @raise what the block raises, else as {Lifecycle#run}
      def run(scheduler, &block)
        value = failure = nil
        Fiber.set_scheduler(scheduler)
        Fiber.schedule do
          FiberName.born_with(block)
          value = yield
        rescue Exception => failure # rubocop:disable Lint/RescueException -- also SystemExit, and failed assertions
          raise scheduler.forked_child? ? failure : Failure # a child forked in this fiber has no run to end
        end
        scheduler.run
        value
      rescue Failure
        abandon(scheduler)
        raise failure, cause: failure.cause
      ensure
        Fiber.set_scheduler(nil) if Fiber.scheduler.equal?(scheduler)
        scheduler.close
      end

      private

      # Ends the other fibers. What they raise has been reported; the block's error is the one to raise.
      def abandon(scheduler)
        scheduler.cancel
        scheduler.run
      rescue StandardError, ScriptError
        nil
      end
    end
  end

  class << self
    # Runs the block in a fiber that has a scheduler, and every fiber that it starts to its end.
    #
    #   Reactor.run do
    #     Fiber.schedule { sleep 1 }
    #     sleep 1
    #     :done
    #   end # => :done, after one second
    #
    # If the current fiber has a scheduler of this library already, the block just runs there: the fibers that it starts belong to
    # the outer run, and may outlive the block.
    #
    # Otherwise the block runs in a fiber of its own, under a new scheduler that ends with it. So `break` and `return` in it raise
    # LocalJumpError, and `throw` to a `catch` outside raises UncaughtThrowError. If the block raises, the other fibers are
    # cancelled, and their ensure clauses run.
    #
    # @param options see {Lifecycle#initialize}
    # @return what the block returns
    # @raise what the block raises, else the first error of another fiber, as {Lifecycle#run}
    # @raise [ArgumentError] no block; or options, where there is a scheduler already
    # @raise [RuntimeError] the thread has a scheduler, and it is another library's, or the current fiber is blocking
    def run(**options, &block)
      raise ArgumentError, "no block given" unless block

      if Schedulers.current
        raise ArgumentError, "this fiber has a scheduler already: #{options.keys.join(", ")} cannot be chosen" unless options.empty?

        return yield
      end
      Schedulers.leave_parents
      if Fiber.scheduler
        foreign = "another library's scheduler (#{Fiber.scheduler.class})" unless Fiber.scheduler.is_a?(Schedulers::Member)
        raise "this thread has #{foreign || "a scheduler already, but this fiber is blocking"}"
      end
      Running.run(Scheduler.new(**options), &block)
    end
  end
end

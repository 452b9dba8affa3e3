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

      # Runs the block in a non-blocking fiber of the calling one's, as an Enumerator's is: while it waits, the other fibers of the
      # scheduler run.
      #
      # @return what the block returns
      # @raise what the block raises
      def run_inside(block)
        fiber = Fiber.new(blocking: false, &block)
        value = fiber.resume
        value = fiber.raise(FiberError, "attempt to yield on a not resumed fiber") while fiber.alive? # by Fiber.yield
        value
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
    # Where the thread has a scheduler of this library already, the block runs under it: in the same fiber, or, if that is blocking
    # (the root fiber, after Fiber.set_scheduler), in one of its own. The fibers that it starts may outlive the block.
    #
    # Otherwise the block runs in a fiber of its own, under a new scheduler that ends with it. If the block raises, the other fibers are
    # cancelled, and their ensure clauses run.
    #
    # In a fiber of its own, `break` and `return` in the block raise LocalJumpError, and `throw` to a `catch` outside raises
    # UncaughtThrowError.
    #
    # @param options see {Lifecycle#initialize}
    # @return what the block returns
    # @raise what the block raises, else the first error of another fiber, as {Lifecycle#run}
    # @raise [ArgumentError] no block; or options, where there is a scheduler already
    # @raise [RuntimeError] the thread has another library's scheduler
    def run(**options, &block)
      raise ArgumentError, "no block given" unless block

      Schedulers.leave_parents
      scheduler = Fiber.scheduler
      return Running.run(Scheduler.new(**options), &block) unless scheduler
      raise "this thread has another library's scheduler (#{scheduler.class})" unless scheduler.is_a?(Schedulers::Member)
      raise ArgumentError, "this thread has a scheduler already: #{options.keys.join(", ")} cannot be chosen" unless options.empty?

      Schedulers.current ? yield : Running.run_inside(block)
    end
  end
end

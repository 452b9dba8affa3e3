# frozen_string_literal: true

require_relative "deadline"

module Reactor
  # Runs a block as the main fiber of a scheduler, which closes when the block has ended.
  #
  # @api private
  module Running
    class << self
      # Sets the scheduler on this thread, runs the block in a fiber, then runs all fibers to completion. However the run ends,
      # the thread is left without a scheduler.
      #
      # @param scheduler [Lifecycle]
      # @return what the block returns
      # @raise what the block raises, otherwise as {Lifecycle#run}
      def run(scheduler, &block)
        value = failure = nil
        Fiber.set_scheduler(scheduler)
        Fiber.schedule do
          value = yield
        rescue Exception => failure # rubocop:disable Lint/RescueException -- includes SystemExit and failed assertions
          raise if failure.is_a?(Cancelled) && scheduler.cancelled?(Fiber.current) # it ends with the other fibers
          raise scheduler.forked_child? ? failure : Lifecycle::Failure # in a child forked by this fiber, there is no run to end
        end
        scheduler.run
        value
      rescue Lifecycle::Failure
        abandon(scheduler, failure)
        raise failure, cause: failure.cause
      ensure
        Fiber.set_scheduler(nil) if Fiber.scheduler.equal?(scheduler)
        scheduler.close
      end

      # Like {run}. A deadline of the calling fiber is replaced by one of the scheduler meanwhile.
      def run_in_time(scheduler, block)
        deadline = Deadline.here or return run(scheduler, &block)

        deadline.around_run(block) { |limited| run(scheduler, &limited) }
      end

      # Runs the block in a non-blocking fiber that the calling fiber resumes, like an Enumerator's. While the block waits, the
      # scheduler's other fibers run.
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

      # Ends the other fibers. Their errors have been reported already; the caller raises the block's error.
      def abandon(scheduler, reason)
        scheduler.cancel(reason)
        scheduler.run
      rescue StandardError, ScriptError
        nil
      end
    end
  end

  class << self
    # Runs the block in a fiber with a scheduler, and runs every fiber it starts to completion.
    #
    #   Reactor.run do
    #     Fiber.schedule { sleep 1 }
    #     sleep 1
    #     :done
    #   end # => :done, after one second
    #
    # If the thread already has a scheduler of this library, the block runs under it: in the calling fiber, or in a new one if the
    # calling fiber is blocking (the root fiber after Fiber.set_scheduler). Fibers that the block starts may then outlive it.
    #
    # Otherwise the block runs in a new fiber, under a new scheduler that is closed at the end. If the block raises, the other
    # fibers are cancelled and their ensure clauses run.
    #
    # In a new fiber, `break` and `return` in the block raise LocalJumpError, and a `throw` to a `catch` outside of it raises
    # UncaughtThrowError.
    #
    # @param options see {Lifecycle#initialize}
    # @return what the block returns
    # @raise what the block raises, otherwise the first error of another fiber, as {Lifecycle#run}
    # @raise [ArgumentError] no block given; or options given although there is already a scheduler
    # @raise [RuntimeError] the thread has a scheduler of another library
    def run(**options, &block)
      raise ArgumentError, "no block given" unless block

      scheduler = Fiber.scheduler
      return Running.run_in_time(Scheduler.new(**options), block) unless scheduler
      raise "this thread has another library's scheduler (#{scheduler.class})" unless scheduler.is_a?(Schedulers::Member)
      raise ArgumentError, "this thread already has a scheduler: cannot set #{options.keys.join(", ")}" unless options.empty?

      Schedulers.current ? yield : Running.run_inside(block)
    end
  end
end

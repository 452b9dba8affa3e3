# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # The fibers that the scheduler makes, from their first to their last line.

    # The hook for Fiber.schedule: makes a fiber and runs it at once, until it waits for the first time.
    #
    # An exception before that reaches the caller. Later a StandardError or ScriptError is reported on stderr (if the
    # thread reports on exceptions), kept, and raised by {Lifecycle#run} when all fibers have ended. Any other exception
    # (SystemExit, Interrupt, NoMemoryError) goes to the root fiber at once. If a trap handler calls it in the middle of a wait, the fiber
    # starts in its turn.
    #
    # @param arguments handed to the block
    # @param options handed to Fiber.new (storage:)
    # @return [Fiber] non-blocking; its storage is a copy of the caller's unless the options say otherwise
    # @raise [RuntimeError] the scheduler is closed, or the process is a forked child
    # @raise [ThreadError] the scheduler belongs to another thread
    # @raise [ArgumentError] without a block
    def fiber(*arguments, **options, &block)
      raise "this scheduler belongs to the parent process" unless enter
      raise ArgumentError, "tried to create Proc object without a block" unless block
      return start_later(arguments, options, block) if interrupts?

      start = Wait.new(Fiber.current, :turn, @waits[Fiber.current])
      fiber = Fiber.new(**options, blocking: false) { |*given| run_fiber(start, given, block) }
      @recorder.birth
      @waits[Fiber.current] = start
      start.queued = true
      @ready.unshift(start) # first in the queue: the caller goes on as soon as the new fiber waits
      park(start) { switch_to_new(fiber, *arguments) }
      fiber
    end

    # Runs until every fiber made by `fiber` has ended, and every watcher that is not transient.
    #
    # @return [nil]
    # @raise the first error that escaped a fiber
    # @raise [FiberError] called from one of these fibers
    # @raise [RuntimeError] the scheduler is closed
    # @raise [ThreadError] it belongs to another thread
    # @api private
    def drain
      return unless enter

      forbid_own_fibers
      wait_until_drained
      error, @error = @error, nil
      raise error if error
    end

    # Ends every watcher, and asks every live fiber to end. It is left where it waits, as by throw, which runs ensure clauses and
    # no rescue. The fibers end in {#drain}, which serves their ensure clauses however long these wait.
    #
    # @return [nil]
    # @raise [FiberError] called from one of these fibers
    # @raise [RuntimeError] the scheduler is closed
    # @raise [ThreadError] it belongs to another thread
    # @api private
    def cancel
      return unless enter

      forbid_own_fibers
      cancel_watchers
      @cancelling = true
      @live.each_key { |fiber| ask_to_end(fiber) }
      nil
    end

    # Asks one fiber to end, as {#cancel} does, unless it has been asked before.
    #
    # @param fiber [Fiber]
    # @return [Boolean] whether it was made by {#fiber}, and has neither ended nor been asked
    # @raise [ThreadError] the scheduler belongs to another thread
    # @api private
    def cancel_fiber(fiber)
      return false unless enter && @live.key?(fiber) && !@cancelled.key?(fiber)

      ask_to_end(fiber)
      true
    end

    # @return [nil]
    # @raise [FiberError] called from one of these fibers
    # @raise [RuntimeError] the scheduler is closed
    # @raise [ThreadError] it belongs to another thread
    # @api private
    def forbid_own_fibers
      fiber = Fiber.current
      # The root fiber, which is blocking, runs on behalf of none: @owners may name the one that had control before.
      return unless enter && (interrupts? || [fiber, (@owners[fiber] unless fiber.blocking?)].any? { |each| @live.key?(each) })

      raise FiberError, "a fiber cannot wait for its own scheduler to end"
    end

    # Called by Ruby 4.0 and later inside long operations: lets the other ready fibers run first.
    #
    # @return [nil]
    def yield
      return Thread.pass unless may_park?

      park(begin_wait(:turn), 0)
    end

    private

    # For a trap handler in the middle of a wait or a poll.
    def start_later(arguments, options, block)
      fiber = Fiber.new(**options, blocking: false) { run_fiber(NO_SPAWNER, arguments, block) }
      @recorder.birth
      @live[fiber] = block
      @ready.push(Wait.new(fiber, :stray, nil, nil, true))
      wake_poll
      fiber
    end

    def run_fiber(start, arguments, block)
      fiber = Fiber.current
      @live[fiber] = block
      catch(fiber) do # thrown by a cancelled wait
        block.call(*arguments)
      rescue Exception => error # rubocop:disable Lint/RescueException -- it would be raised in an unrelated fiber
        if forked_child?
          raise # in a child forked by this fiber no drain will raise it
        elsif !start.done
          start.error = [error]
        elsif error.is_a?(StandardError) || error.is_a?(ScriptError)
          keep_error(error, fiber)
        else
          raise # out of the fiber: Ruby raises it at the end of the root fiber's chain of resumes
        end
      end
      nil # Ruby keeps what a dead fiber returned, which may be another fiber, and so on
    ensure
      @live.delete(fiber)
      @cancelled.delete(fiber)
      @suspects.delete(fiber)
      go_on_draining
    end

    # The first one that `on_error` does not take comes out of #run in the end.
    def keep_error(error, ended)
      taken = report_error(error, ended)
    ensure
      @error ||= error unless taken
    end

    # A fiber of the program's own may call it in the middle of another call.
    def wait_until_drained
      outer = @drain
      until drained?
        if cancelled_have_ended?
          @drain = nil
          next cancel
        end

        park(@drain = begin_wait(:turn))
      end
    ensure
      @drain = outer
      go_on_draining
      @cancelling = false
    end

    def go_on_draining = (enqueue(@drain) if @drain && (drained? || cancelled_have_ended?))

    # Then the fibers are cancelled that `ensure` clauses have started, as the VM does with threads.
    def cancelled_have_ended? = @cancelling && @cancelled.empty?

    def ask_to_end(fiber)
      @cancelled[fiber] = true
      enqueue(Delivery.new(fiber))
    end
  end
end

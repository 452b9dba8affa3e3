# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # Makes, runs and cancels the scheduler's fibers.

    # The hook for Fiber.schedule: makes a fiber and runs it at once, until its first wait.
    #
    # An exception before the first wait is raised in the caller. A later StandardError or ScriptError is reported on stderr (if
    # the thread reports on exceptions), kept, and raised by {Lifecycle#run} when all fibers have ended. Any other exception
    # (SystemExit, Interrupt, NoMemoryError) is raised in the root fiber at once. If a trap handler calls this in the middle of a
    # wait, the fiber starts later, when it is its turn.
    #
    # @param arguments passed to the block
    # @param options passed to Fiber.new (storage:)
    # @return [Fiber] non-blocking; its storage is a copy of the caller's unless the options say otherwise
    # @raise [RuntimeError] the scheduler is closed, or the process is a forked child
    # @raise [ThreadError] the scheduler belongs to another thread
    # @raise [ArgumentError] no block given
    def fiber(*arguments, **options, &block)
      raise "this scheduler belongs to the parent process" unless enter
      raise ArgumentError, "tried to create Proc object without a block" unless block
      return start_later(arguments, options, block) if interrupts?

      start = Wait.new(Fiber.current, :turn, @waits[Fiber.current])
      fiber = Fiber.new(**options, blocking: false) { |*given| run_fiber(start, given, block) }
      @recorder.birth
      @waits[Fiber.current] = start
      start.queued = true
      @ready.unshift(start) # first in the queue, so the caller continues as soon as the new fiber waits
      park(start) { switch_to_new(fiber, *arguments) }
      fiber
    end

    # Runs until every fiber made by `fiber` and every non-transient watcher has ended.
    #
    # @return [nil]
    # @raise the first error that escaped a fiber
    # @raise [FiberError] called from one of the scheduler's fibers
    # @raise [RuntimeError] the scheduler is closed
    # @raise [ThreadError] the scheduler belongs to another thread
    # @api private
    def drain
      return unless enter

      forbid_own_fibers
      wait_until_drained
      error, @error = @error, nil
      raise error if error
    end

    # Ends every watcher, and asks every live fiber to end. A fiber leaves where it waits, as if by throw, so ensure clauses run
    # and rescue clauses do not. The fibers end in {#drain}: it serves their ensure clauses, however long these wait.
    #
    # @return [nil]
    # @raise [FiberError] called from one of the scheduler's fibers
    # @raise [RuntimeError] the scheduler is closed
    # @raise [ThreadError] the scheduler belongs to another thread
    # @api private
    def cancel
      return unless enter

      forbid_own_fibers
      cancel_watchers
      @cancelling = true
      @live.each_key { |fiber| ask_to_end(fiber) }
      nil
    end

    # Asks one fiber to end, like {#cancel}, unless it has been asked before.
    #
    # @param fiber [Fiber]
    # @return [Boolean] whether it was made by {#fiber} and had neither ended nor been asked
    # @raise [ThreadError] the scheduler belongs to another thread
    # @api private
    def cancel_fiber(fiber)
      return false unless enter && @live.key?(fiber) && !@cancelled.key?(fiber)

      ask_to_end(fiber)
      true
    end

    # @return [nil]
    # @raise [FiberError] called from one of the scheduler's fibers
    # @raise [RuntimeError] the scheduler is closed
    # @raise [ThreadError] the scheduler belongs to another thread
    # @api private
    def forbid_own_fibers
      fiber = Fiber.current
      # The root fiber, which is blocking, never runs on behalf of another fiber, though @owners may have an entry for the root
      # fiber.
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

    # Used by a trap handler in the middle of a wait or a poll.
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
      catch(fiber) do # a cancelled wait throws to it
        block.call(*arguments)
      rescue Exception => error # rubocop:disable Lint/RescueException -- Ruby would raise it in an unrelated fiber
        if forked_child?
          raise # in a child forked by this fiber, no drain would raise it
        elsif !start.done
          start.error = [error]
        elsif error.is_a?(StandardError) || error.is_a?(ScriptError)
          keep_error(error, fiber)
        else
          raise # leaves the fiber: Ruby raises it at the end of the root fiber's chain of resumes
        end
      end
      nil # Ruby keeps the value of an ended fiber: it could be another fiber with a value, and so on
    ensure
      @live.delete(fiber)
      @cancelled.delete(fiber)
      @suspects.delete(fiber)
      continue_draining
    end

    # Keeps the first error that `on_error` does not handle, for #run to raise.
    def keep_error(error, ended)
      taken = report_error(error, ended)
    ensure
      @error ||= error unless taken
    end

    # A fiber that the program made itself may call this while another call is in progress.
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
      continue_draining
      @cancelling = false
    end

    def continue_draining = (enqueue(@drain) if @drain && (drained? || cancelled_have_ended?))

    # Whether all cancelled fibers have ended. The fibers that their `ensure` clauses started are then cancelled next, as threads
    # are in the VM.
    def cancelled_have_ended? = @cancelling && @cancelled.empty?

    def ask_to_end(fiber)
      @cancelled[fiber] = true
      enqueue(Delivery.new(fiber))
    end
  end
end

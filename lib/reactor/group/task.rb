# frozen_string_literal: true

module Reactor
  class Group
    # A block that runs in a fiber of a group.
    class Task
      # @return [Symbol] :running; :completed, it has a value; :failed, it has an error; or :cancelled. The task that is cancelled
      #   is running until its ensure clauses have run.
      attr_reader :state

      # @return [Exception, nil] what the block raised
      attr_reader :error

      # @api private
      def initialize(group, scheduler, block)
        @group = group
        @scheduler = scheduler
        @block = block
        @state = :running
        @asked = false # to end
      end

      # @return [Boolean] whether its fiber has not ended
      def running? = @state == :running

      # @return [Boolean] whether its fiber is the current one
      # @api private
      def runs_here? = Fiber.current.equal?(@fiber)

      # Waits for the end of the task.
      #
      # @return what the block has returned; nil if the task was cancelled
      # @raise what the block has raised
      # @raise [ThreadError] called by another thread, or by the task itself
      def value
        @group.check_thread
        raise ThreadError, "a task cannot wait for itself" if runs_here?

        (@ended ||= Thread::Queue.new).pop while running?
        return @value unless @error

        @group.leave_block
        raise @error, cause: @error.cause
      end

      # Asks the task to end at the call in which it waits, as by throw: ensure clauses run, and rescue clauses do not. Ensure clauses may
      # wait. The caller does not wait for the end. A second call does nothing, so it ends no wait of an ensure clause. If the task
      # leaves its ensure clause by next, break or return, it goes on, and the group waits for it.
      #
      # @return [Boolean] whether it was running, and had not been asked
      # @raise [ThreadError] called by another thread
      def cancel
        @group.check_thread
        return false if @asked || !running?

        @asked = true
        throw self if runs_here?
        @scheduler.cancel_fiber(@fiber) if @fiber
        true
      end

      # Runs the block in the current fiber.
      #
      # @api private
      def call
        @fiber = Fiber.current
        return if @asked # before it began

        FiberName.born_with(@block)
        catch(self) do # thrown by a task that cancels itself
          @value = @block.call
          @state = :completed
        end
      rescue Exception => error # rubocop:disable Lint/RescueException -- the group raises it in its owner
        raise if @scheduler.forked_child? # where the owner does not run

        @error = error
        @state = :failed
      ensure
        @state = :cancelled if running?
        @block = @fiber = nil
        @ended&.close
        @group.ended(self)
      end

      # @return [String] its state
      def inspect = "#<#{self.class} #{@state}>"
    end
  end
end

# frozen_string_literal: true

module Reactor
  class Group
    # A block that runs in a fiber of a group.
    class Task
      # @return [Symbol] :running; :completed, with a value; :failed, with an error; or :cancelled. A cancelled task is running
      #   until its ensure clauses have run.
      attr_reader :state

      # @return [Exception, nil] the error of the block
      attr_reader :error

      # Why it was cancelled; see {Cancelled#reason}.
      #
      # @return [Object, nil] nil if it was not cancelled, was cancelled without a reason, or was ended by the scheduler
      attr_reader :reason

      # @return [Symbol, nil] :transient; :settled, so its error does not fail the group; or nil
      # @api private
      attr_reader :kind

      # @param body [Proc] the block to run
      # @param block [Proc] the program's block
      # @api private
      def initialize(group, scheduler, body, arguments, kind, block)
        @group = group
        @scheduler = scheduler
        @body = body
        @arguments = arguments
        @kind = kind
        @block = block
        @state = :running
        @asked = false # whether it has been asked to end
      end

      # @return [Boolean] whether its fiber has not ended
      def running? = @state == :running

      # @return [String, nil] where its block is defined; nil if unknown, or if the task has ended
      # @api private
      def place = @block&.source_location&.join(":")

      # @return [Boolean] whether its fiber is the current one
      # @api private
      def runs_here? = Fiber.current.equal?(@scope&.fiber)

      # Waits for the task to end. A failed task has failed its group too, so rescuing its error here does not keep the group
      # alive; use {Group#settle} for that.
      #
      # @return the result of the block; nil if the task was cancelled
      # @raise the error of the block, even after {Group#settle}
      # @raise [ThreadError] called on another thread, or by the task itself
      def value
        join
        return @value unless @error

        @group.scope.leave
        raise @error, cause: @error.cause
      end

      # Waits for the task to end, without raising its error.
      #
      # @api private
      def join
        @group.check_thread
        raise ThreadError, "a task cannot wait for itself" if runs_here?

        (@ended ||= Thread::Queue.new).pop while running?
      end

      # Ends the task: raises {Cancelled} at the call in which it waits, or, in a block of {Reactor.shield}, when that block has
      # ended. The caller does not wait for the task to end. What the task waits for comes first if it arrives before the task runs:
      # the task then ends at its next wait, or completes. A second call does nothing, so it does not end a wait in an ensure clause.
      #
      # @param reason for {Cancelled#reason}
      # @return [Boolean] whether the task was running and had not been asked to end before
      # @raise [ThreadError] called on another thread
      def cancel(reason = nil)
        @group.check_thread
        return false if @asked || !running?

        @asked = true
        @reason = reason
        return true if @scope.nil? || @scheduler.cancelled?(@scope.fiber) # not begun, or ending with its scheduler

        @scope.cancel(reason)
        @scope.leave
        true
      end

      # Runs the block in the current fiber.
      #
      # @api private
      def call
        return if @asked # asked before the task started

        @scope = Scope.new(@scheduler, outer: @group.scope)
        @scope.run do
          @value = @body.call(*@arguments)
          @state = :completed
        end
      rescue Cancelled
        nil
      rescue Exception => error # rubocop:disable Lint/RescueException -- the group raises it in its owner
        raise if @scheduler.forked_child? # the owner does not run there

        @error = error
        @state = :failed
      ensure
        @state = :cancelled if running?
        @body = @arguments = @block = @scope = nil
        @ended&.close
        @group.ended(self)
      end

      # @return [String] includes its state
      def inspect = "#<#{self.class} #{@state}>"
    end
  end
end

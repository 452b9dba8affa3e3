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

      # Why it was cancelled: the argument of {#cancel} or {Group#cancel}; the error that failed the group (a Timeout::Error when
      # the group's timeout elapses); :lost, because another task was first ({Group#first}, {Group#any}); or :left, because the
      # group's block was left in another way.
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
      def runs_here? = Fiber.current.equal?(@fiber)

      # Waits for the task to end. A failed task has failed its group too, so rescuing its error here does not keep the group
      # alive; use {Group#settle} for that.
      #
      # @return the result of the block; nil if the task was cancelled
      # @raise the error of the block, even after {Group#settle}
      # @raise [ThreadError] called on another thread, or by the task itself
      def value
        join
        return @value unless @error

        @group.leave_block
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

      # Asks the task to end at the call in which it waits, as if by throw: ensure clauses run, rescue clauses do not. Ensure
      # clauses may wait. The caller does not wait for the task to end. A second call does nothing, so it does not end a wait in
      # an ensure clause. If the task leaves its ensure clause by next, break or return, it continues, and the group waits for it.
      # In a block of {Reactor.shield}, the task ends when that block has ended.
      #
      # @param reason for {#reason}
      # @return [Boolean] whether the task was running and had not been asked to end before
      # @raise [ThreadError] called on another thread
      def cancel(reason = nil)
        @group.check_thread
        return false if @asked || !running?

        @asked = true
        @reason = reason
        deliver(runs_here?)
        true
      end

      # Ends the task's fiber at the call in which it waits, once the fiber has left its shields.
      #
      # @param here [Boolean] whether the caller is the task's own fiber: then it ends at once
      # @api private
      def deliver(here)
        shield = Scope::Shield.over(@fiber) if @fiber
        return shield.task = self if shield
        return unless @fiber

        throw self if here
        return @scheduler.cancel_fiber(@fiber) unless runs_here?

        end_at_next_wait
      end

      # Runs the block in the current fiber.
      #
      # @api private
      def call
        @fiber = Fiber.current
        return if @asked # asked before the task started

        catch(self) do # a task that cancels itself throws to this catch
          @value = @body.call(*@arguments)
          @state = :completed
        end
      rescue Exception => error # rubocop:disable Lint/RescueException -- the group raises it in its owner
        raise if @scheduler.forked_child? # the owner does not run there

        @error = error
        @state = :failed
      ensure
        @state = :cancelled if running?
        @body = @arguments = @block = @fiber = nil
        @ended&.close
        @group.ended(self)
      end

      # @return [String] includes its state
      def inspect = "#<#{self.class} #{@state}>"

      private

      # Called when an exception leaves a shield. The program may rescue the exception, so the task must end at its next wait. The
      # scheduler cancels no running fiber, so another fiber requests the end while this one waits. If the task first enters
      # another shield, it ends there.
      def end_at_next_wait
        Scope::Shield.refuse(self)
        @scheduler.fiber do
          @scheduler.yield
          deliver(false) if Scope::Shield.refused(@fiber)
        end
      rescue FiberError # no memory for a fiber
        throw self
      end
    end
  end
end

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

      # What it was cancelled for: the argument of {#cancel} or {Group#cancel}; the error that failed the group, which is a Timeout::Error
      # when its time is over; :lost, because another task was first ({Group#first}, {Group#any}); or :left, because the block of the group
      # has ended in another way.
      #
      # @return [Object, nil] nil: it was not, or for no reason, or the scheduler ends
      attr_reader :reason

      # @return [Symbol, nil] :transient, :settled: its error does not fail the group; nil: none of these
      # @api private
      attr_reader :kind

      # @param body [Proc] is run
      # @param block [Proc] the program's
      # @api private
      def initialize(group, scheduler, body, arguments, kind, block)
        @group = group
        @scheduler = scheduler
        @body = body
        @arguments = arguments
        @kind = kind
        @block = block
        @state = :running
        @asked = false # to end
      end

      # @return [Boolean] whether its fiber has not ended
      def running? = @state == :running

      # @return [String, nil] where its block is; nil if that is not known, or the task has ended
      # @api private
      def place = @block&.source_location&.join(":")

      # @return [Boolean] whether its fiber is the current one
      # @api private
      def runs_here? = Fiber.current.equal?(@fiber)

      # Waits for the end of the task. A task that has failed has failed its group as well, so to rescue its error here does not keep the
      # group alive: {Group#settle} does.
      #
      # @return what the block has returned; nil if the task was cancelled
      # @raise what the block has raised, also after {Group#settle}
      # @raise [ThreadError] called by another thread, or by the task itself
      def value
        join
        return @value unless @error

        @group.leave_block
        raise @error, cause: @error.cause
      end

      # Waits for the end of the task, and raises none of its errors.
      #
      # @api private
      def join
        @group.check_thread
        raise ThreadError, "a task cannot wait for itself" if runs_here?

        (@ended ||= Thread::Queue.new).pop while running?
      end

      # Asks the task to end at the call in which it waits, as by throw: ensure clauses run, and rescue clauses do not. Ensure clauses may
      # wait. The caller does not wait for the end. A second call does nothing, so it ends no wait of an ensure clause. If the task
      # leaves its ensure clause by next, break or return, it goes on, and the group waits for it. In a block of {Reactor.shield}, it ends
      # after that.
      #
      # @param reason for {#reason}
      # @return [Boolean] whether it was running, and had not been asked
      # @raise [ThreadError] called by another thread
      def cancel(reason = nil)
        @group.check_thread
        return false if @asked || !running?

        @asked = true
        @reason = reason
        deliver(runs_here?)
        true
      end

      # Ends its fiber where that waits, when its shields have ended.
      #
      # @param here [Boolean] at once: the caller is the fiber
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
        return if @asked # before it began

        catch(self) do # thrown by a task that cancels itself
          @value = @body.call(*@arguments)
          @state = :completed
        end
      rescue Exception => error # rubocop:disable Lint/RescueException -- the group raises it in its owner
        raise if @scheduler.forked_child? # where the owner does not run

        @error = error
        @state = :failed
      ensure
        @state = :cancelled if running?
        @body = @arguments = @block = @fiber = nil
        @ended&.close
        @group.ended(self)
      end

      # @return [String] its state
      def inspect = "#<#{self.class} #{@state}>"

      private

      # An exception leaves a shield, and the program may rescue it. The scheduler cancels no fiber that runs, so another fiber asks it
      # to, when this one waits. If this one begins a shield first, it ends there.
      def end_at_next_wait
        Scope::Shield.refuse(self)
        @scheduler.fiber do
          @scheduler.yield
          deliver(false)
        end
      rescue FiberError # no memory for a fiber
        throw self
      end
    end
  end
end

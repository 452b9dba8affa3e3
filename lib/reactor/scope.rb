# frozen_string_literal: true

module Reactor
  # A block of a group or a deadline. It can be ended from outside, at the call in which it waits.
  #
  # A fiber knows its innermost scope or shield, and each of these knows the one around it. When a scope is to end while a
  # {Shield} inside it runs, the end is delayed until the shield's block has ended.
  #
  # @api private
  class Scope
    # Ends the block. It is not a StandardError, so a plain `rescue` in the block does not catch it.
    class Interruption < Exception
      # @param late [Proc] makes the error to raise when the time limit elapses
      def initialize(late)
        super("the block is interrupted")
        @late = late
      end

      attr_writer :reason

      # @return [Exception] the reason for the end
      def reason = @reason ||= @late.call

      # @return [Boolean] whether {Scope#interrupt} was called, as opposed to an elapsed time limit
      def asked? = !@reason.nil?

      # @return [Boolean] whether it has been raised
      def raised? = @raised == true

      # Timeout.timeout raises it with a message.
      def exception(*)
        @raised = true
        self
      end
    end

    # A block that no group, task or deadline around it can end.
    class Shield
      ENDING = :@__reactor_ending
      private_constant :ENDING

      # @param task [Group::Task] belongs to the current fiber, and ends when it would enter a shield
      def self.refuse(task) = Fiber.current.instance_variable_set(ENDING, task)

      # @return [Group::Task, nil] the task given to {refuse}; nil from the second call on
      def self.refused(fiber) = fiber&.instance_variable_get(ENDING)&.tap { fiber.instance_variable_set(ENDING, nil) }

      # @param inside [Scope, nil] search only inside this scope; nil: search everywhere
      # @return [Shield, nil] the innermost shield of the fiber
      def self.over(fiber, inside = nil)
        scope = Scope.innermost(fiber)
        scope = scope.outer until scope.nil? || scope.equal?(inside) || Shield === scope
        scope if Shield === scope
      end

      # @return [Scope, Shield, nil] the one around it
      attr_reader :outer

      # @return [Group::Task] the task that ends, along with its fiber, when this shield has ended
      attr_writer :task

      def initialize(scheduler)
        @scheduler = scheduler
        @outer = Scope.innermost(Fiber.current)
        @interrupted = []
      end

      # Runs the block in the current fiber.
      def run
        Shield.refused(Fiber.current)&.deliver(true)
        Scope.enter(self)
        scopes.each(&:hold_time)
        @scheduler.yield # raises what has already arrived for this fiber
        value = yield
        ended = true
        value
      ensure
        Scope.enter(@outer)
        late = scopes.reverse.map(&:resume_time).any? # the outermost one first
        @task&.deliver(ended)
        @interrupted.each(&:deliver)
        @scheduler.yield if ended && (late || @interrupted.any?) # raises the delayed errors
      end

      # @param scope [Scope] ends when this shield has ended
      def hold(scope) = @interrupted << scope

      private

      # The scopes between this shield and the next outer one.
      def scopes
        scope = @outer
        found = []
        until scope.nil? || Shield === scope
          found << scope
          scope = scope.outer
        end
        found
      end
    end

    INNERMOST = :@__reactor_scope
    private_constant :INNERMOST

    class << self
      # @return [Scope, Shield, nil]
      def innermost(fiber) = fiber.instance_variable_get(INNERMOST)

      def enter(scope) = Fiber.current.instance_variable_set(INNERMOST, scope)
    end

    # @return [Scope, Shield, nil] the one around it
    attr_reader :outer

    # @return [Interruption]
    attr_reader :stop

    # @param late [Proc] makes the error to raise when the time limit elapses
    def initialize(scheduler, late)
      @scheduler = scheduler
      @stop = Interruption.new(late)
    end

    # Runs the block in the current fiber.
    #
    # @param seconds [Numeric, nil] time limit of the block
    # @raise [Interruption] {#stop}: the time limit has elapsed, or {#interrupt} was called
    def run(seconds)
      @fiber = Fiber.current
      @outer = Scope.innermost(@fiber)
      Scope.enter(self)
      @due = Clock.now + seconds if seconds
      @scheduler.interruptible(seconds, @stop) do |interruption|
        @interruption = interruption
        yield
      end
    ensure
      @interruption = nil
      Scope.enter(@outer)
    end

    # Ends the block at the call in which it waits, unless it has ended.
    #
    # @param reason [Exception]
    def interrupt(reason)
      return unless @interruption

      @stop.reason = reason
      deliver
    end

    # Ends the block like {#interrupt}, once the shields in it have ended.
    def deliver
      return unless @interruption

      shield = Shield.over(@fiber, self)
      shield ? shield.hold(self) : @scheduler.interrupt(@interruption)
    end

    # Leaves the block if it is interrupted and the caller is the block itself, outside any shield.
    def leave
      return unless @interruption && @stop.asked? && Fiber.current.equal?(@fiber) && !Shield.over(@fiber, self)

      @scheduler.yield # raises a pending interruption here, so that it does not end a later wait
      raise @stop
    end

    # Suspends the time limit until {#resume_time}, unless it has elapsed.
    def hold_time = resume_time(nil)

    # @param left [Float, nil] seconds until the block ends, unless the time limit has elapsed; nil: no limit
    # @return [Boolean] whether the time limit has elapsed
    def resume_time(left = @due && @due - Clock.now)
      return false unless @due && @interruption

      expired = @due <= Clock.now
      expired ? @scheduler.interrupt(@interruption) : @scheduler.limit(@interruption, left)
      expired
    end
  end
end

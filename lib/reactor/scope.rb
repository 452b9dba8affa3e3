# frozen_string_literal: true

module Reactor
  # A block of a fiber that others may end at the call in which it waits: a group's, or a deadline's.
  #
  # A fiber knows the innermost of its scopes and shields, and each of these the one around it. What would end a scope around a {Shield}
  # is held there until the shield's block has ended.
  #
  # @api private
  class Scope
    # Ends the block. It is no StandardError, so that a `rescue` in the block does not end it.
    class Interruption < Exception
      # @param late [Proc] makes the error of a block whose time is over
      def initialize(late)
        super("the block is interrupted")
        @late = late
      end

      attr_writer :reason

      # @return [Exception] why
      def reason = @reason ||= @late.call

      # @return [Boolean] by {Scope#interrupt}, not by the time
      def asked? = !@reason.nil?

      # Timeout.timeout raises it with a message.
      def exception(*) = self
    end

    # A block that no group, task or deadline around it ends.
    class Shield
      ENDING = :@__reactor_ending
      private_constant :ENDING

      # @param task [Group::Task] of the current fiber; ends where that would begin a shield
      def self.refuse(task) = Fiber.current.instance_variable_set(ENDING, task)

      # @param inside [Scope, nil] only a shield in this block; nil: in any
      # @return [Shield, nil] the innermost one of the fiber
      def self.over(fiber, inside = nil)
        scope = Scope.innermost(fiber)
        scope = scope.outer until scope.nil? || scope.equal?(inside) || Shield === scope
        scope if Shield === scope
      end

      # @return [Scope, Shield, nil] what is around it
      attr_reader :outer

      # @return [Group::Task] is to end, with its fiber, when this has
      attr_writer :task

      def initialize(scheduler)
        @scheduler = scheduler
        @outer = Scope.innermost(Fiber.current)
        @interrupted = []
      end

      # Runs the block in the current fiber.
      def run
        Fiber.current.instance_variable_get(ENDING)&.deliver(true)
        Scope.enter(self)
        scopes.each(&:hold_time)
        @scheduler.yield # raises what has come before
        value = yield
        ended = true
        value
      ensure
        Scope.enter(@outer)
        late = scopes.reverse.map(&:go_on).any? # the outermost one first
        @task&.deliver(ended)
        @interrupted.each(&:deliver)
        @scheduler.yield if ended && (late || @interrupted.any?) # raises what was held
      end

      # @param scope [Scope] is to end when this has
      def hold(scope) = @interrupted << scope

      private

      # Those between it and the shield around it.
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

    # @return [Scope, Shield, nil] what is around it
    attr_reader :outer

    # @return [Interruption]
    attr_reader :stop

    # @param late [Proc] makes the error of a block whose time is over
    def initialize(scheduler, late)
      @scheduler = scheduler
      @stop = Interruption.new(late)
    end

    # Runs the block in the current fiber.
    #
    # @param seconds [Numeric, nil] for all of it
    # @raise [Interruption] {#stop}: the time is over, or {#interrupt} was called
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

    # Ends the block where it waits, if it has not ended.
    #
    # @param reason [Exception]
    def interrupt(reason)
      return unless @interruption

      @stop.reason = reason
      deliver
    end

    # The same, when the shields in the block have ended.
    def deliver
      return unless @interruption

      shield = Shield.over(@fiber, self)
      shield ? shield.hold(self) : @scheduler.interrupt(@interruption)
    end

    # Leaves the block, if it is interrupted, and the caller is the block itself and not in a shield.
    def leave
      return unless @interruption && @stop.asked? && Fiber.current.equal?(@fiber) && !Shield.over(@fiber, self)

      @scheduler.yield # raises the interruption that is on its way, so that it ends no later wait
      raise @stop
    end

    # The time that passes does not end the block until {#go_on}, unless it is over.
    def hold_time = go_on(nil)

    # @param left [Float, nil] seconds until the block ends, if the time is not over; nil: no limit
    # @return [Boolean] whether the time is over
    def go_on(left = @due && @due - Clock.now)
      return false unless @due && @interruption

      over = @due <= Clock.now
      over ? @scheduler.interrupt(@interruption) : @scheduler.limit(@interruption, left)
      over
    end
  end
end

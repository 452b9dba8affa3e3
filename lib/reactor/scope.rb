# frozen_string_literal: true

require "timeout"
require_relative "clock"

module Reactor
  # A time limit has elapsed: of {Reactor.deadline}, {Reactor.group}, {Group#settle}, {Semaphore#acquire} or {RateLimit#acquire}.
  # This is a StandardError, but a limit of a block raises it outside the block, so a `rescue` inside never sees it.
  class DeadlineExceeded < Timeout::Error
  end

  # Ends a fiber, or a block in it, before its time. It is raised at the call in which the fiber waits, by everything in this
  # library that ends one: {Group}, {Group::Task#cancel}, {Reactor.deadline}, {Reactor.run}, {Server#stop}, the end of a scheduler.
  # `rescue Exception` sees it, as the `transaction` methods of database libraries need. A plain `rescue` does not, because it is
  # not a StandardError. It is raised once, so `rescue` and `ensure` clauses may wait, and it is not reported as an error.
  #
  # Code that rescues it should raise it again, and no `ensure` clause should be left by next, break or return: otherwise the code
  # goes on, and whoever waits for its end waits on. Only at the end of a scheduler is a fiber that waits again cancelled again,
  # and killed the third time.
  class Cancelled < Exception # rubocop:disable Lint/InheritException -- no plain rescue may stop it
    # Why: the argument of {Group::Task#cancel} or {Group#cancel}; the error that failed the group or ended the run; a
    # {DeadlineExceeded}, because a time limit has elapsed; :lost, because another task was first ({Group#first}, {Group#any});
    # :left, because the group's block was left in another way; or :stopped, by {Server#stop}.
    #
    # @return [Object, nil] nil if there is no reason
    def reason = @reason ||= @late&.call

    # @param late [Proc] makes the reason if {Scope#cancel} has not given one
    # @api private
    def initialize(reason = nil, &late)
      super("the fiber was cancelled")
      @reason = reason
      @late = late
    end

    # @api private
    attr_writer :reason

    # @return [Exception, nil] what a clause handles in which the block begins
    # @api private
    attr_writer :handled

    # @api private
    attr_reader :raised

    # @return [Boolean] whether its block has ended
    # @api private
    attr_accessor :over

    # @param error [Exception, nil] that the code in the block handles
    # @return [Boolean] whether another ending, which came first, runs that code
    # @api private
    def second_to?(error)
      until error.nil? || error.equal?(@handled)
        return true if error.is_a?(Cancelled) && !error.over

        error = error.cause
      end
      false
    end

    # Ruby calls this when it raises the exception. (Timeout.timeout passes a message.)
    #
    # @api private
    def exception(*)
      @raised = true
      self
    end
  end

  # A block in a fiber that may be ended from outside, at the call in which it waits: of a group, of a task, of a deadline. Or a
  # shield: a block that is not ended. A fiber knows its innermost scope, and each scope the one around it. That of a task has the
  # scope of its group around it.
  #
  # @api private
  class Scope
    INNERMOST = :@__reactor_scope
    private_constant :INNERMOST

    class << self
      # @return [Scope, nil] the innermost scope of the fiber
      def innermost(fiber = Fiber.current) = fiber.instance_variable_get(INNERMOST)

      # Raises in one of the scheduler's fibers, once it has left its shields.
      #
      # @return [void]
      def end_fiber(scheduler, fiber, reason)
        outside_shields(fiber) { scheduler.cancel_fiber(fiber, Cancelled.new(reason)) }
      end

      # Calls the block once the fiber has left its shields.
      #
      # @param within [Scope, nil] only the shields inside this scope of the fiber
      # @return [void]
      def outside_shields(fiber, within = nil, &block)
        scope = innermost(fiber)
        scope = scope.outer until scope.nil? || scope.equal?(within) || scope.shield?
        scope&.shield? ? scope.hold(-> { outside_shields(fiber, within, &block) }) : yield
      end

      # Whether a fiber that waits for the one that has resumed it is in a shield: what ends the other comes after the shield.
      #
      # @return [Boolean]
      def hold_for(fiber)
        scope = innermost(fiber)
        scope = scope.outer until scope.nil? || scope.shield?
        scope&.hold
        !scope.nil?
      end
    end

    # @return [Scope, nil] the one around it
    attr_reader :outer

    # @return [Fiber, nil] that runs the block
    attr_reader :fiber

    # @return [Cancelled] what is raised in the block
    attr_reader :cancelled

    # @param outer [Scope, nil] the one around it
    # @param late [Proc] makes the reason when the time limit elapses
    def initialize(scheduler, outer: Scope.innermost, &late)
      @scheduler = scheduler
      @outer = outer
      @cancelled = Cancelled.new(&late)
    end

    # Runs the block in the current fiber.
    #
    # @param seconds [Numeric, nil] time limit
    # @raise [Cancelled] {#cancelled}: the time limit has elapsed, or {#cancel} was called
    def run(seconds = nil)
      @cancelled.handled = $!
      enter do
        @due = Clock.now + seconds if seconds
        @scheduler.interruptible(seconds, @cancelled) do |number|
          @number = number
          yield
        end
      end
    ensure
      @number = nil
      @cancelled.over = true
    end

    # Runs the block in the current fiber. Whatever would end it comes when it has ended.
    def shield
      @held = []
      @is_awaited = false
      enter do
        around = scopes_around.each(&:pause)
        @scheduler.yield # raises what has already arrived for this fiber
        around.each(&:hold_back)
        value = yield
        ended = true
        value
      ensure
        @fiber.instance_variable_set(INNERMOST, @outer)
        late = around&.reverse&.map(&:resume)&.any? # the outermost one first
        @held.each(&:call)
        @scheduler.yield if ended && (late || @is_awaited) # raises what was held back
      end
    end

    def shield? = !@held.nil?

    # What is to end the code around the shield comes when the shield's block has ended.
    #
    # @param delivery [#call, nil] does it; nil: the scheduler itself, when the fiber waits
    def hold(delivery = nil)
      @is_awaited = true
      @held << delivery if delivery
    end

    # Ends the block at the call in which it waits, unless it has ended, or its end has been raised.
    #
    # @return [void]
    def cancel(reason)
      return if @number.nil? || @cancelled.raised

      @cancelled.reason = reason
      Scope.outside_shields(@fiber, self) { deliver }
    end

    # Raises what {#cancel} asked for, in the block itself and outside any shield, so that it does not end a later wait.
    def leave = (@scheduler.yield if @number && Fiber.current.equal?(@fiber))

    # Sets a new time limit, unless it has elapsed.
    #
    # @param seconds [Numeric, nil] from now on; nil: no limit
    # @return [void]
    def move(seconds)
      @due = seconds && (Clock.now + seconds)
      limit(seconds) unless @paused
    end

    # Suspends the time limit until {#resume}, unless it has elapsed.
    def pause
      @paused = true
      @held_back = false
      continue(nil)
    end

    # Delays until {#resume} an end that has been asked for, but is not raised yet, because the code is a clause of another ending.
    def hold_back = @held_back = @number && @scheduler.withdraw(@number)

    # @return [Boolean] whether the block ends
    def resume
      @paused = false
      return continue(@due && (@due - Clock.now)) unless @held_back

      deliver
      true
    end

    private

    # @param left [Float, nil] seconds until the block ends, unless the time limit has elapsed; nil: no limit
    def continue(left)
      return false unless @due && @number

      elapsed = @due <= Clock.now
      elapsed ? deliver : limit(left)
      elapsed
    end

    def limit(seconds) = (@scheduler.limit(@number, seconds) if @number)

    def enter
      @fiber = Fiber.current
      inner = Scope.innermost(@fiber)
      @fiber.instance_variable_set(INNERMOST, self)
      yield
    ensure
      @fiber.instance_variable_set(INNERMOST, inner)
    end

    def deliver = (@scheduler.interrupt(@number) if @number)

    # The scopes of this fiber between this shield and the next outer one.
    def scopes_around
      scope = @outer
      found = []
      until scope.nil? || scope.shield? || !scope.fiber.equal?(@fiber)
        found << scope
        scope = scope.outer
      end
      found
    end
  end
end

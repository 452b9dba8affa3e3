# frozen_string_literal: true

require_relative "clock"
require_relative "checks"
require_relative "scope"

module Reactor
  # The time limit of a {Reactor.deadline} block, which is given to the block. It is kept in fiber storage, so fibers and threads
  # started in the block inherit it.
  class Deadline
    KEY = :__reactor_deadline
    private_constant :KEY

    class << self
      # @return [Deadline, nil] the current fiber's
      # @api private
      def current
        deadline = Fiber[KEY]
        deadline = deadline.outer while deadline&.ended?
        deadline
      end

      # @return [Deadline, nil] the current deadline, if its end ends the code that the current fiber runs
      # @api private
      def here = current&.then { |deadline| deadline if deadline.here? }

      # Runs the block with this deadline, or without any.
      #
      # @api private
      def with(deadline)
        outer = Fiber[KEY]
        Fiber[KEY] = deadline
        yield
      ensure
        Fiber[KEY] = outer
      end

      # @api private
      def without(&) = with(nil, &)
    end

    # @return [Deadline, nil] the deadline around this one
    # @api private
    attr_reader :outer

    # @param seconds [Float] time limit of the block
    # @param block [Proc] the program's block
    # @param time [Float] end of the block on the monotonic clock
    # @api private
    def initialize(seconds, block, time = Clock.now + seconds)
      @seconds = seconds
      @place = block.source_location
      @outer = Deadline.current
      limited = !@outer.nil? && !@outer.raised?
      @within = limited && @outer.here? && @outer.acts? # whether the outer deadline ends this block itself
      @bound = limited && !@within && @outer.time <= time # whether this one has the end of the outer one, which it inherits
      @time = @bound ? @outer.time : time
      @fiber = Fiber.current
      @scheduler = Schedulers.current
      @pid = Process.pid
    end

    # @return [Boolean] whether its block has ended
    # @api private
    def ended? = @fiber.nil?

    # Any thread may call this.
    #
    # @return [Float] seconds left, at least 0
    def left = Clock.left(time, Clock.now).to_f

    # Sets a new time limit for the block, unless {Cancelled} has been raised in it already. Deadlines around and inside this one,
    # and those that other fibers have set meanwhile, stay as they are.
    #
    # @param seconds [Numeric] from now on; 0 or less: elapses at the next wait
    # @return [self]
    # @raise [TypeError] seconds is not a number
    # @raise [RuntimeError] the block has ended, or its fiber has no scheduler
    # @raise [ThreadError] called on another thread
    def move(seconds)
      seconds = Checks.limit(:seconds, seconds) or raise TypeError, "seconds must be a number, not nil"
      raise "the block of this deadline has ended" unless @fiber
      raise "without a scheduler, a deadline cannot be moved" unless @scope
      return self if raised?

      @seconds = seconds
      @bound = false
      @time = Clock.now + seconds
      limit
      self
    end

    # Runs the block in the current fiber.
    #
    # @param raises [Boolean] whether to raise when the time limit has elapsed
    # @raise [DeadlineExceeded]
    # @api private
    def run(raises: true, &block)
      Deadline.with(self) { interruptible(&block) }
    rescue Cancelled => cancelled
      # Without a scheduler, in a forked child, Timeout may raise the outer deadline's.
      raise unless cancelled.equal?(@cancelled) || (@cancelled && !@scope && cancelled.reason.equal?(error))

      raise cancelled.reason, cause: nil if raises
    ensure
      @fiber = nil
      @outer.inside.delete(self) if @within
    end

    # Called without a scheduler: leaves the block if the time limit has elapsed and the block itself calls this, not one of its
    # ensure clauses.
    #
    # @api private
    def leave = (raise @cancelled if @fiber.equal?(Fiber.current) && left.zero? && !@cancelled.raised)

    # Limits a run by a deadline of its scheduler instead of this one, so that shields in the run delay its end.
    #
    # @param block [Proc] of the run
    # @yieldparam limited [Proc] the same block with that deadline
    # @api private
    def around_run(block)
      Thread.handle_interrupt(Cancelled => :never) { yield -> { Deadline.new(Float::INFINITY, block).run { block.call } } }
    end

    # @return [String] includes the seconds left
    def inspect = "#<#{self.class} #{ended? ? "ended" : format("%.1f s left", left)}>"

    # @return [Boolean] whether the end of this deadline ends the code that the current fiber runs
    # @api private
    def here?
      return @fiber.equal?(Fiber.current) unless @scope

      scope = Scope.innermost
      scope = scope.outer until scope.nil? || scope.equal?(@scope)
      !scope.nil?
    end

    protected

    # @return [Hash] has those directly inside whose blocks this one ends too, as keys
    def inside = @inside ||= {}.compare_by_identity

    # @return [Float] when the block ends, on the monotonic clock
    def time = @within ? [@time, @outer.time].min : @time

    # Has the scope end the block, unless the outer deadline does so first.
    def limit
      @scope.move(ends_with_outer? ? nil : @time - Clock.now)
      @inside&.each_key { |deadline| deadline.limit }
    end

    # @return [Boolean] whether it, or one around it, has ended its block, of which an ensure clause may be running
    def raised? = @cancelled&.raised || ((@within || @bound) && @outer.raised?)

    # @return [Boolean] whether this deadline takes effect in the current fiber: no deadline does in a forked child, and the
    #   deadline of a scheduler does not in Fiber.blocking
    def acts? = @pid == Process.pid && @scheduler.equal?(Schedulers.current)

    # @return [DeadlineExceeded] a single object for everything this deadline ends, in any fiber
    def error = @bound ? @outer.error : @error ||= DeadlineExceeded.new(message)

    private

    def message = "the block did not finish within #{format("%g", @seconds)} s#{": #{@place.join(":")}" if @place}"

    def ends_with_outer? = @within && @outer.time <= @time

    def interruptible(&block)
      @outer.inside[self] = true if @within
      if @scheduler
        @scope = Scope.new(@scheduler) { error }
        @cancelled = @scope.cancelled
        @scope.run(ends_with_outer? ? nil : @time - Clock.now) { yield(self) }
      elsif ends_with_outer?
        yield(self)
      else
        own = Class.new(Cancelled).set_temporary_name("reactor: cancelled") # a class that no shield around this block delays
        @cancelled = own.new { error }
        limit = left.clamp(Float::MIN, Checks::FAR) # 0 would be no limit
        Thread.handle_interrupt(own => :immediate) { Timeout.timeout(limit, @cancelled) { yield(self) } }
      end
    end
  end

  class << self
    # Runs the block with a time limit: when it elapses, {Cancelled} is raised at the call in which the block waits, and this
    # method raises DeadlineExceeded. What the block waits for and has already arrived comes first: the block then ends at its
    # next wait, if there is one.
    #
    #   Reactor.deadline(2) do |deadline|
    #     user = find(id)                       # fibers and tasks started here inherit the deadline
    #     Reactor.deadline(10) { render(user) } # limited to what is left of the 2 seconds
    #     deadline.move(5)                      # five more seconds from here
    #     deliver(user)
    #   end
    #
    # With `raises: false`, the block is left without an error, and this method returns nil.
    #
    # If a deadline in the block, or in a task of a group in the block, is later than this one, that deadline has no effect: the
    # error is raised from here, and an inner `rescue DeadlineExceeded` does not see it. Other fibers started in the block may
    # outlive it; while the block runs, deadlines in those fibers end no later than this one.
    #
    # @param seconds [Numeric, nil] 0 or less: elapses at the first wait; nil: no additional limit, and the block is given nil
    # @param raises [Boolean] whether to raise when the time limit has elapsed
    # @yieldparam deadline [Deadline]
    # @return what the block returns; nil if the time limit has elapsed and `raises` is false
    # @raise [DeadlineExceeded] the time limit has elapsed; the message includes the seconds and the place of the block
    # @raise [ArgumentError] no block given
    # @raise [TypeError] seconds is not a number
    # @see Reactor.remaining
    # @see Reactor.shield
    def deadline(seconds, raises: true, &block)
      raise ArgumentError, "no block given" unless block

      seconds = Checks.limit(:seconds, seconds)
      return yield unless seconds

      Deadline.new(seconds, block).run(raises: raises, &block)
    end

    # The time left until the {Reactor.deadline} of the current fiber, even one that it inherited, for example in a block of
    # {Reactor.offload}.
    #
    # @return [Float, nil] seconds, at least 0; nil without a deadline and in {Reactor.shield}
    def remaining = Deadline.current&.left
  end
end

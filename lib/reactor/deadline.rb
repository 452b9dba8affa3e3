# frozen_string_literal: true

require "timeout"
require_relative "clock"
require_relative "options"
require_relative "scope"

module Reactor
  # The time limit of a {Reactor.deadline} block has elapsed. This is a StandardError, but it is raised outside the block, so a
  # `rescue` inside never sees it.
  class DeadlineExceeded < Timeout::Error
  end

  # The time limit of a block. It is kept in fiber storage, so fibers and threads started in the block inherit it.
  #
  # @api private
  class Deadline
    KEY = :__reactor_deadline
    ENDS_TASK = :@__reactor_deadline
    private_constant :KEY, :ENDS_TASK

    class << self
      # @return [Deadline, nil] the current fiber's
      def current
        deadline = Fiber[KEY]
        deadline = deadline.outer while deadline&.ended?
        deadline
      end

      # @return [Deadline, nil] the current deadline, if its end ends the code that the current fiber runs
      def here = current&.then { |deadline| deadline if deadline.here? }

      # Runs the block with this deadline, or without any.
      def with(deadline)
        outer = Fiber[KEY]
        Fiber[KEY] = deadline
        yield
      ensure
        Fiber[KEY] = outer
      end

      def without(&) = with(nil, &)
    end

    # @return [Deadline, nil] the deadline around this one
    attr_reader :outer

    # @param seconds [Float] time limit of the block
    # @param block [Proc] the program's block
    # @param time [Float] end of the block on the monotonic clock
    def initialize(seconds, block, time = Clock.now + seconds)
      @seconds = seconds
      @place = block.source_location
      @outer = Deadline.current
      @bound = !@outer.nil? && @outer.time <= time # whether the outer deadline is earlier
      @time = @bound ? @outer.time : time
      @fiber = Fiber.current
      @scheduler = Schedulers.current
      @pid = Process.pid
    end

    # @return [Boolean] whether its block has ended
    def ended? = @fiber.nil?

    # @return [Float] seconds left, at least 0
    def left = Clock.left(@time, Clock.now).to_f

    # Runs the block in the current fiber.
    #
    # @raise [DeadlineExceeded]
    def run(&block)
      return yield if @bound && @outer.here? && @outer.acts? # the outer deadline also ends this block

      Deadline.with(self) { interruptible(&block) }
    rescue Scope::Interruption => interruption
      raise unless @stop && interruption.reason.equal?(error) # in a forked child, Timeout may raise the outer deadline's

      raise error, cause: nil
    ensure
      @fiber = nil
    end

    # Called without a scheduler: leaves the block if the time limit has elapsed and the block itself calls this, not one of its
    # ensure clauses.
    def leave = (raise @stop if @fiber.equal?(Fiber.current) && left.zero? && !@stop.raised?)

    # Limits a run by a deadline of its scheduler instead of this one, so that shields in the run delay its end.
    #
    # @param block [Proc] of the run
    # @yieldparam limited [Proc] the same block with that deadline
    def around_run(block)
      Thread.handle_interrupt(Scope::Interruption => :never) { yield -> { Deadline.new(Float::INFINITY, block).run(&block) } }
    end

    # Records that this deadline ends the current fiber: the fiber runs a task of a group that was opened in the block.
    def enter_task = Fiber.current.instance_variable_set(ENDS_TASK, self)

    # @return [Boolean] whether the end of this deadline ends the code that the current fiber runs
    def here?
      fiber = Fiber.current
      @fiber.equal?(fiber) || equal?(fiber.instance_variable_get(ENDS_TASK)) || (@bound && @outer.here?)
    end

    protected

    attr_reader :time

    # @return [Boolean] whether this deadline takes effect in the current fiber: no deadline does in a forked child, and the
    #   deadline of a scheduler does not in Fiber.blocking
    def acts? = @pid == Process.pid && @scheduler.equal?(Schedulers.current)

    # @return [DeadlineExceeded] a single object for everything this deadline ends, in any fiber
    def error = @bound ? @outer.error : @error ||= DeadlineExceeded.new(message)

    private

    def message = "the block did not finish within #{format("%g", @seconds)} s#{": #{@place.join(":")}" if @place}"

    def interruptible
      if @scheduler
        scope = Scope.new(@scheduler, -> { error })
        @stop = scope.stop
        scope.run(left) { yield }
      else
        own = Class.new(Scope::Interruption) # a class that no shield around this block delays
        @stop = own.new(-> { error })
        Thread.handle_interrupt(own => :immediate) { Timeout.timeout(left.clamp(Float::MIN, Durations::FAR), @stop) { yield } } # 0 would be no limit
      end
    end
  end

  class << self
    # Runs the block with a time limit: when it elapses, the block ends at the call in which it waits, as with Timeout.timeout,
    # but no `rescue` in the block sees that.
    #
    #   Reactor.deadline(2) do
    #     user = find(id)                       # fibers and tasks started here inherit the deadline
    #     Reactor.deadline(10) { render(user) } # limited to what is left of the 2 seconds
    #   end
    #
    # If a deadline in the block, or in a task of a group in the block, is later than this one, that deadline has no effect: the
    # error is raised from here, and an inner `rescue DeadlineExceeded` does not see it. Other fibers started in the block may
    # outlive it; while the block runs, deadlines in those fibers end no later than this one.
    #
    # @param seconds [Numeric, nil] 0 or less: elapses at the first wait; nil: no additional limit
    # @return what the block returns
    # @raise [DeadlineExceeded] the time limit has elapsed; the message includes the seconds and the place of the block
    # @raise [ArgumentError] no block given
    # @raise [TypeError] seconds is not a number
    # @see Reactor.remaining
    # @see Reactor.shield
    def deadline(seconds, &block)
      raise ArgumentError, "no block given" unless block

      seconds = Options.limit(:seconds, seconds)
      seconds ? Deadline.new(seconds, block).run(&block) : yield
    end

    # The time left until the {Reactor.deadline} of the current fiber, even one that it inherited, for example in a block of
    # {Reactor.offload}.
    #
    # @return [Float, nil] seconds, at least 0; nil without a deadline and in {Reactor.shield}
    def remaining = Deadline.current&.left
  end
end

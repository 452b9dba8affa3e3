# frozen_string_literal: true

require "timeout"
require_relative "clock"
require_relative "options"
require_relative "scope"

module Reactor
  # The time of a block of {Reactor.deadline} is over. It is a StandardError, but is raised from there: no `rescue` in the block sees it.
  class DeadlineExceeded < Timeout::Error
  end

  # When a block has to end. It is in the storage of its fiber, so fibers and threads that are started there inherit it.
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

      # @return [Deadline, nil] the same, if it ends what the current fiber runs
      def here = current&.then { |deadline| deadline if deadline.here? }

      # Runs the block with this one, or without any.
      def with(deadline)
        outer = Fiber[KEY]
        Fiber[KEY] = deadline
        yield
      ensure
        Fiber[KEY] = outer
      end

      def without(&) = with(nil, &)
    end

    # @return [Deadline, nil] the one around it
    attr_reader :outer

    # @param seconds [Float] for the block
    # @param block [Proc] the program's
    # @param time [Float] on the monotonic clock
    def initialize(seconds, block, time = Clock.now + seconds)
      @seconds = seconds
      @place = block.source_location
      @outer = Deadline.current
      @bound = !@outer.nil? && @outer.time <= time # by the outer one
      @time = @bound ? @outer.time : time
      @fiber = Fiber.current
      @scheduler = Schedulers.current
      @pid = Process.pid
    end

    # @return [Boolean] whether its block has ended
    def ended? = @fiber.nil?

    # @return [Float] seconds, at least 0
    def left = Clock.left(@time, Clock.now).to_f

    # Runs the block in the current fiber.
    #
    # @raise [DeadlineExceeded]
    def run(&block)
      return yield if @bound && @outer.here? && @outer.acts? # that one ends this block, too

      Deadline.with(self) { interruptible(&block) }
    rescue Scope::Interruption => interruption
      raise unless @stop && interruption.reason.equal?(error) # in a forked child, Timeout may raise the outer one's

      raise error, cause: nil
    ensure
      @fiber = nil
    end

    # Leaves the block, if the time is over, and the caller is the block itself, without a scheduler.
    def leave = (raise @stop if @fiber.equal?(Fiber.current) && left.zero?)

    # Tells that it ends the current fiber, which is a task's of a group in its block.
    def enter_task = Fiber.current.instance_variable_set(ENDS_TASK, self)

    # @return [Boolean] whether its end ends what the current fiber runs
    def here?
      fiber = Fiber.current
      @fiber.equal?(fiber) || equal?(fiber.instance_variable_get(ENDS_TASK)) || (@bound && @outer.here?)
    end

    protected

    attr_reader :time

    # @return [Boolean] whether its limit works in the current fiber: not in a forked child, and that of a scheduler not in Fiber.blocking
    def acts? = @pid == Process.pid && @scheduler.equal?(Schedulers.current)

    # @return [DeadlineExceeded] the same for all that this one ends, in several fibers
    def error = @bound ? @outer.error : @error ||= DeadlineExceeded.new(message)

    private

    def message = "the block was late after #{format("%g", @seconds)} s#{": #{@place.join(":")}" if @place}"

    def interruptible
      if @scheduler
        scope = Scope.new(@scheduler, -> { error })
        @stop = scope.stop
        scope.run(left) { yield }
      else
        own = Class.new(Scope::Interruption) # which a shield around this block does not hold back
        @stop = own.new(-> { error })
        Thread.handle_interrupt(own => :immediate) { Timeout.timeout(left.clamp(Float::MIN, Durations::FAR), @stop) { yield } } # 0 would be no limit
      end
    end
  end

  class << self
    # Runs the block for so long at most: then it ends at the call in which it waits, as by Timeout.timeout, and no `rescue` in it sees
    # that.
    #
    #   Reactor.deadline(2) do
    #     user = find(id)                       # a fiber or task that is started here inherits the deadline
    #     Reactor.deadline(10) { render(user) } # has what is left of the 2 seconds
    #   end
    #
    # A deadline in the block, or in a task of a group in the block, leaves the end to this one, if it is later: the error is raised from
    # here, and an inner `rescue DeadlineExceeded` does not see it. Another fiber that is started in the block may outlive it; while the
    # block runs, deadlines in that fiber end no later than this one.
    #
    # @param seconds [Numeric, nil] 0 or less: over at the first wait; nil: no limit of its own
    # @return what the block returns
    # @raise [DeadlineExceeded] the time is over; the message has the seconds, and where the block is
    # @raise [ArgumentError] without a block
    # @raise [TypeError] seconds is no number
    # @see Reactor.remaining
    # @see Reactor.shield
    def deadline(seconds, &block)
      raise ArgumentError, "no block given" unless block

      seconds = Options.limit(:seconds, seconds)
      seconds ? Deadline.new(seconds, block).run(&block) : yield
    end

    # What is left until the {Reactor.deadline} of the current fiber, which it may have inherited: in a block of {Reactor.offload}, too.
    #
    # @return [Float, nil] seconds, at least 0; nil without a deadline, and in a {Reactor.shield}
    def remaining = Deadline.current&.left
  end
end

# frozen_string_literal: true

module Reactor
  Stall = Data.define(:fiber, :seconds, :backtrace, :over)

  # A fiber that held the loop: meanwhile the scheduler ran no other fiber and served no timer and no descriptor.
  #
  # @!attribute [r] fiber
  #   @return [Fiber, nil] nil for code outside the scheduler's fibers (the root fiber between two hooks)
  # @!attribute [r] seconds
  #   @return [Float] the fiber has held the loop for at least this long
  # @!attribute [r] backtrace
  #   @return [Array<String>] of the scheduler's thread when the stall was detected, as for a {FiberStatus}
  # @!attribute [r] over
  #   @return [Boolean] false in the report when the stall is detected; true in a second report, when the stall has ended
  class Stall
    # @return [String] a description with fiber and duration, and while the stall lasts, the backtrace
    def to_s
      return format("reactor: the stall of %s ended after %.3f s", FiberName.describe(fiber), seconds) if over

      head = format("reactor: %s has held the loop for %.3f s", FiberName.describe(fiber), seconds)
      [head, *backtrace].join("\n    ")
    end
  end

  # Detects fibers that hold the loop, from a thread of its own. It compares a count that the scheduler keeps anyway, four times
  # per limit, so watching costs the loop nothing.
  #
  # If the fiber is in a system call, waits for a lock, or is in C code that has released the GVL, the stall is detected at most a
  # quarter of the limit late, and the backtrace shows where it is.
  #
  # If the fiber computes in Ruby, the watching thread gets the GVL only at the end of a time slice of 100 ms. So while a thread
  # is watched, its priority is lowered from 0 to a level with a time slice of about 20 ms.
  #
  # If the fiber is in C code that keeps the GVL, the stall is detected when the call returns, or when the fiber next waits or ends. The
  # duration is then right, but the backtrace shows the place where the call returned, or where the fiber waits; none if it has ended.
  class StallDetector
    CHECKS_PER_LIMIT = 4
    # Seconds that the end of a run waits for the last reports.
    PATIENCE = 1
    # The VM's time slice is 100 ms, halved for each step of priority below 0. At -3 that is 12.5 ms, counted in ticks of 10 ms.
    SHORT_SLICE_PRIORITY = -3
    # Number of stalls kept.
    KEPT = 8
    private_constant :KEPT, :CHECKS_PER_LIMIT, :PATIENCE, :SHORT_SLICE_PRIORITY

    # @return [Integer] number of stalls detected
    # @api private
    attr_reader :count

    # @return [Array<Stall>] the longest stalls that have ended, longest first
    # @api private
    attr_reader :slowest

    # @param scheduler [Lifecycle]
    # @param limit [Numeric] seconds, more than 0
    # @param report [#call, nil] is given each {Stall}, on the watching thread; an error it raises is written to $stderr; nil: the
    #   stalls are written to $stderr
    # @raise [ArgumentError, TypeError, RangeError] limit is not a duration, or 0
    # @api private
    def initialize(scheduler, limit, report)
      @scheduler = scheduler
      @limit = Checks.seconds(:stall, limit)
      raise ArgumentError, "stall must be more than 0 seconds" if @limit.nil? || @limit.zero?

      @report = report || ->(stall) { $stderr.write("#{stall}\n") }
      @count = 0
      @slowest = [].freeze
    end

    # Starts watching the current thread, in a forked child as well. Does nothing if the thread is being watched already.
    #
    # @return [nil]
    # @api private
    def start
      return if @thread&.alive?

      @watched = Thread.current
      @watched.priority = SHORT_SLICE_PRIORITY if @watched.priority.zero?
      @scheduler.watch_holds(@limit) # not on the new thread, which may get the GVL only when the first stall has ended
      @ending = Thread::Queue.new
      @thread = Thread.new { watch }
      @thread.name = "reactor stalls"
      nil
    end

    # Ends the watching, after the reports of what has ended before.
    #
    # @return [nil]
    # @api private
    def stop
      thread, @thread = @thread, nil
      return unless thread

      @ending.close
      join(thread) unless thread.equal?(Thread.current)
      @watched.priority = 0 if @watched.priority == SHORT_SLICE_PRIORITY
      nil
    end

    private

    def watch
      Thread.current.thread_variable_set(:reactor_bystander, true)
      VM.replace_storage(nil) # drops the storage of the fiber that happened to start this thread
      progress, since, stall, ended = nil
      until ended
        ended = @ending.closed?
        now, before = Clock.now, progress
        progress = @scheduler.progress_count
        if progress.nil? || progress != before
          held = @scheduler.take_hold
          stall ? finish(stall, now - since) : held && report_late(*held)
          stall, since = nil, now
        elsif stall.nil? && now - since >= @limit
          report(stall = found(now - since))
        end
        @ending.pop(timeout: @limit / CHECKS_PER_LIMIT.to_f)
      end
    end

    def found(seconds)
      @count += 1
      Stall.new(@scheduler.running_fiber, seconds, FiberStatus.backtrace(@watched), false)
    end

    # Reports a stall that has ended before this thread got the GVL.
    def report_late(fiber, seconds)
      @count += 1
      report(stall = Stall.new(fiber, seconds, fiber&.alive? ? FiberStatus.backtrace(fiber) : [], false))
      finish(stall, seconds)
    end

    def finish(stall, seconds)
      ended = stall.with(seconds: seconds, over: true)
      @slowest = [*@slowest, ended].max_by(KEPT, &:seconds).freeze
      report(ended)
    end

    # An error in the reporter ends neither the watching nor the run. But `exit` in the reporter ends the program, as on any
    # thread.
    def report(stall)
      @report.call(stall)
    rescue SystemExit
      raise
    rescue Exception => error # rubocop:disable Lint/RescueException -- nobody else handles it
      VM.report_error(@report, error, "raised an exception while handling a stall")
    end

    # Ends a thread whose reporter does not return. Ignores the error that ended the thread, because Ruby has reported it.
    def join(thread)
      Fiber.blocking { thread.join(PATIENCE) || thread.kill.join }
    rescue Exception # rubocop:disable Lint/RescueException -- the thread's
      nil
    end

    # Prepended to the singleton class of a watched scheduler, because the thread of a scheduler is known only when the scheduler
    # makes its first fiber.
    #
    # @api private
    module Hook
      # @return [Fiber]
      def fiber(...)
        @stalls.start
        super
      end

      # @return [nil]
      def shutdown
        @stalls.stop
        super
      end
    end
  end
end

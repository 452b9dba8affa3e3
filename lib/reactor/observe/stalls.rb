# frozen_string_literal: true

module Reactor
  Stall = Data.define(:fiber, :seconds, :backtrace, :over)

  # A fiber that held the loop: no other fiber of the scheduler, no timer and no descriptor was served meanwhile.
  #
  # @!attribute [r] fiber
  #   @return [Fiber, nil] nil for code outside of the scheduler's fibers (the root fiber between two hooks)
  # @!attribute [r] seconds
  #   @return [Float] how long it has held the loop at least
  # @!attribute [r] backtrace
  #   @return [Array<String>] of the scheduler's thread when the stall was found, as for a {FiberStatus}
  # @!attribute [r] over
  #   @return [Boolean] false when the stall is found; true in a second report when it has ended
  class Stall
    # @return [String] what it was, and where
    def to_s
      return format("reactor: the stall of %s ended after %.3f s", FiberName.describe(fiber), seconds) if over

      head = format("reactor: %s has held the loop for %.3f s", FiberName.describe(fiber), seconds)
      [head, *backtrace].join("\n    ")
    end
  end

  # Finds fibers that hold the loop, from a thread of its own. Four times within the limit it compares a count that the
  # scheduler keeps anyway, so watching costs the loop nothing.
  #
  # If the fiber is in a system call, waits for a lock, or is in C code that has released the GVL, the stall is found within a
  # quarter of the limit after it has lasted that long, and the backtrace shows the place.
  #
  # If the fiber computes in Ruby, the watching thread gets the GVL at the end of a time slice. That is 100 ms, so while the
  # thread is watched its priority is lowered, if it was 0, to the number that makes the slice about 20 ms.
  #
  # If the fiber is in C code that keeps the GVL, the stall is found when the call returns. Then the time is right, and the
  # backtrace is that of the place where the call returned.
  class StallDetector
    CHECKS_PER_LIMIT = 4
    # The VM's time slice is 100 ms, and half of that for each step of priority below 0: 12.5 ms, which the VM counts in ticks of 10 ms.
    SHORT_SLICE_PRIORITY = -3
    # Stalls that are kept.
    KEPT = 8
    private_constant :KEPT, :CHECKS_PER_LIMIT, :SHORT_SLICE_PRIORITY

    # @return [Integer] stalls found
    # @api private
    attr_reader :count

    # @return [Array<Stall>] the longest that have ended, the longest first
    # @api private
    attr_reader :slowest

    # @param scheduler [Lifecycle]
    # @param limit [Numeric] seconds, more than 0
    # @param report [#call, nil] is given each {Stall}, on the watching thread; nil: each is written to $stderr. An error that it
    #   raises is written to $stderr
    # @raise [ArgumentError, TypeError, RangeError] no duration, or 0
    # @api private
    def initialize(scheduler, limit, report)
      @scheduler = scheduler
      @limit = Options.seconds(:stall, limit)
      raise ArgumentError, "stall must be more than 0 seconds" if @limit.nil? || @limit.zero?
      raise TypeError, "on_stall must respond to call" unless report.nil? || report.respond_to?(:call)

      @report = report || ->(stall) { $stderr.write("#{stall}\n") }
      @count = 0
      @slowest = [].freeze
    end

    # Begins to watch the current thread, also after a fork. Does nothing if it is being watched.
    #
    # @return [nil]
    # @api private
    def start
      return if @thread&.alive?

      @watched = Thread.current
      @watched.priority = SHORT_SLICE_PRIORITY if @watched.priority.zero?
      @thread = Thread.new { watch }
      @thread.name = "reactor stalls"
      nil
    end

    # @return [nil]
    # @api private
    def stop
      thread, @thread = @thread, nil
      return unless thread

      thread.kill
      join(thread) unless thread.equal?(Thread.current)
      @watched.priority = 0 if @watched.priority == SHORT_SLICE_PRIORITY
      nil
    end

    private

    def watch
      Thread.current.thread_variable_set(:reactor_bystander, true)
      VM.replace_storage(nil) # that of the fiber which happened to start it
      progress, since, stall = nil
      until @scheduler.closed?
        now, before = Clock.now, progress
        progress = @scheduler.progress_count
        if progress.nil? || progress != before
          finish(stall, now - since) if stall
          stall, since = nil, now
        elsif stall.nil? && now - since >= @limit
          report(stall = found(now - since))
        end
        sleep @limit / CHECKS_PER_LIMIT.to_f
      end
    end

    def found(seconds)
      @count += 1
      Stall.new(@scheduler.running_fiber, seconds, FiberStatus.backtrace(@watched), false)
    end

    def finish(stall, seconds)
      ended = stall.with(seconds: seconds, over: true)
      @slowest = [*@slowest, ended].max_by(KEPT, &:seconds).freeze
      report(ended)
    end

    # An error of the reporter ends neither the watching nor the run. Its `exit` ends the program, as on every thread.
    def report(stall)
      @report.call(stall)
    rescue SystemExit
      raise
    rescue Exception => error # rubocop:disable Lint/RescueException -- it concerns nobody else
      VM.report_error(@report, error, "raised an exception while handling a stall")
    end

    # Whatever has ended it: Ruby has reported that.
    def join(thread)
      Fiber.blocking { thread.join }
    rescue Exception # rubocop:disable Lint/RescueException -- the thread's
      nil
    end

    # Prepended to the singleton class of a scheduler that is watched. Its thread is known when it makes its first fiber.
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

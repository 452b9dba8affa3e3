# frozen_string_literal: true

module Reactor
  # A fiber that held the loop: no other fiber of the scheduler, no timer and no descriptor was served meanwhile.
  #
  # [fiber]     the Fiber; nil for code outside of the scheduler's fibers (the root fiber between two hooks)
  # [seconds]   how long it has held the loop at least
  # [backtrace] of the scheduler's thread, at the moment the stall was found; as for a {FiberStatus}
  # [over]      false when it is found; true in a second report when it has ended
  Stall = Data.define(:fiber, :seconds, :backtrace, :over) do
    # @return [String] what it was, and where
    def to_s
      return format("reactor: the stall of %s ended after %.3f s", fiber&.inspect || "the root fiber", seconds) if over

      head = format("reactor: %s has held the loop for %.3f s", fiber&.inspect || "the root fiber", seconds)
      [head, *backtrace].join("\n    ")
    end
  end

  # Finds fibers that hold the loop, from a thread of its own. It looks four times within the limit whether control has
  # changed hands, by numbers the selector counts anyway: watching costs the loop nothing.
  #
  # What can be seen when: a stall that waits (a system call, a lock, C code without the lock) is found within a quarter
  # of the limit after it has lasted that long, and the backtrace shows it. One that computes in Ruby shares the lock
  # with the watching thread, which gets its turn at the end of a time slice; that is 100 ms, so while it watches, the
  # priority of the scheduler's thread is lowered, if it was 0, to the number that makes it about 20 ms. One that stays
  # in C code and keeps the lock is found only when it gives it back: the time is right, the backtrace is that of the
  # place where the call returned.
  class StallDetector
    LOOKS = 4
    # Time slices are 100 ms, halved for each step of priority below 0.
    BRIEF = -3
    private_constant :LOOKS, :BRIEF

    # @return [Integer] stalls found
    attr_reader :count

    # @param scheduler [Scheduler]
    # @param limit [Numeric] seconds
    # @param report [#call, nil] is given each {Stall}, on the watching thread; nil: writes them to $stderr
    # @raise [ArgumentError, TypeError, RangeError] no duration, or 0
    def initialize(scheduler, limit, report)
      @scheduler = scheduler
      @limit = PortableScheduler.seconds(limit)
      raise ArgumentError, "a stall cannot be shorter than no time" if @limit.nil? || @limit.zero?
      raise TypeError, "on_stall must respond to call" unless report.nil? || report.respond_to?(:call)

      @report = report || ->(stall) { $stderr.write("#{stall}\n") }
      @count = 0
    end

    # Begins to watch the current thread; of no effect if it is being watched. Also after a fork.
    #
    # @return [nil]
    def start
      return if @thread&.alive?

      @watched = Thread.current
      @watched.priority = BRIEF if @watched.priority.zero?
      @thread = Thread.new { watch }
      @thread.name = "reactor stalls"
      nil
    end

    # @return [nil]
    def stop
      thread, @thread = @thread, nil
      return unless thread

      thread.kill
      thread.join unless thread.equal?(Thread.current)
      @watched.priority = 0 if @watched.priority == BRIEF
      nil
    end

    private

    def watch
      Thread.current.thread_variable_set(:reactor_bystander, true)
      pulse, since, stall = nil
      until @scheduler.closed?
        now, before = PortableScheduler.now, pulse
        pulse = @scheduler.pulse
        if pulse.nil? || pulse != before
          finish(stall, now - since) if stall
          stall, since = nil, now
        elsif stall.nil? && now - since >= @limit
          @report.call(stall = found(now - since))
        end
        sleep @limit / LOOKS.to_f
      end
    end

    def found(seconds)
      @count += 1
      Stall.new(@scheduler.holder, seconds, Inspection.backtrace(@watched), false)
    end

    def finish(stall, seconds)
      @report.call(stall.with(seconds: seconds, over: true))
    end

    # Prepended to a scheduler that is watched: the thread is known when it makes its first fiber.
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

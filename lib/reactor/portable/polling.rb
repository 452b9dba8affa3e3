# frozen_string_literal: true

require_relative "../clock"
require_relative "../durations"
require_relative "../vm"

module Reactor
  class PortableScheduler
    # A turn of the loop: what has become ready, whose time has come.

    # Seconds between two polls at most while descriptors are waited for, because C code does not tell that it has closed or
    # replaced one.
    MAX_SLEEP = 1.0
    private_constant :MAX_SLEEP

    private

    # Asks what has become ready. It waits for an answer if no fiber is ready.
    #
    # IO.select runs in a blocking fiber of its own. Because the fiber is blocking, IO.select does not call the hooks.
    # Because it is a fiber of its own, Interrupt, Thread#raise and Thread#kill end only this fiber, and Ruby raises them in
    # the fiber at the end of the root fiber's chain of resumes. The fiber that polls goes on waiting, unharmed.
    #
    # The first such fiber gets its stack at once: after other fibers have taken all memory, none could poll.
    #
    # A fiber that is made in a trap handler never runs trap handlers, also when that handler has ended. So each makes the next one.
    def poll
      @poller = @next_poller unless @poller.alive?
      switch(@poller, Fiber.current)
    end

    def start_poller
      @poller = new_poller
      @poller.transfer(nil, Fiber.current)
    end

    # If its first switch comes with a maker, it gives control back to that one before it polls.
    def new_poller
      Fiber.new(blocking: true, storage: nil) do |asker, maker|
        @next_poller = new_poller
        asker = maker.transfer if maker
        while asker
          poll_once
          @running = asker # here, because a trap handler may run as soon as that one has control
          asker = asker.transfer
        end
      end
    end

    def poll_once
      @resumes_since_poll = 0
      @polled_at = Clock.now
      @recorder.end_turn
      @polling = true # set before the ready queue is looked at: a thread that enqueues after that writes to the pipe
      jump = false
      timeout = @ready.empty? ? poll_timeout { jump = true } : 0
      sleeps = !timeout&.zero?
      @recorder.begin_sleep if sleeps
      found = @descriptors.select(timeout)
      found&.each { |wait, error| error ? refuse(wait, error) : enqueue(wait) }
      @timers.jump if jump && !found && @ready.empty?
      fire_timers
      raise_deadlock unless found
    ensure
      @recorder.end_sleep if sleeps
      @polling = false
    end

    # @yield if the virtual clock may jump afterwards
    # @return [Numeric, nil] seconds that the kernel may let this thread sleep
    def poll_timeout
      if @timers.may_jump?
        yield
        return wakeable_from_outside? ? @timers.settle : 0
      end
      @unblock_only_sleeps = unblock_only? ? @unblock_only_sleeps + 1 : 0
      return 0.1 * 2**[@unblock_only_sleeps - 1, 4].min if @unblock_only_sleeps.positive?

      left = [Clock.left(@timers.deadline, Clock.now), Durations::FAR].min if @timers.deadline && !@timers.virtual_now
      idle = MAX_SLEEP unless @descriptors.empty?
      [left, idle].compact.min
    end

    # Whether nothing but an unblock can wake a fiber.
    def unblock_only?
      !@live.empty? && @timers.size.zero? && @descriptors.empty? && @waits.values.count(&:forever?) >= @live.size
    end

    # Ruby itself finds threads that all wait for one another. It knows nothing of fibers.
    def raise_deadlock
      return if @unblock_only_sleeps.zero? || !@ready.empty? || !respond_to?(:deadlock_message, true)

      message = deadlock_message
      raise VM::FATAL, message if message
    end

    # Queues first and removes afterwards: an exception in between loses nothing.
    def fire_timers
      @clock = Clock.now
      now = @timers.virtual_now || @clock
      while (timer = @timers.first) && timer.at <= now
        enqueue(timer.entry)
        @recorder.lateness.record(now - timer.at)
        @timers.remove(timer)
      end
    end

    # IO.select raises for an IO of this wait.
    def refuse(wait, error)
      # Of a watched one, the kernel does not poll the descriptor. If C code has closed it, the block finds out.
      return interrupt_watch(wait, :closed) if wait.is_a?(Watch) && wait.io.closed?

      wait.is_a?(Watch) ? wait.events |= wait.target.last : wait.error ||= [error.class, error.message]
      enqueue(wait)
    end

    # Ends the kernel's sleep, if there is one. Any thread may call it.
    def wake_poll
      return if !@polling || forked_child?

      @recorder.counts[:wakeups] += 1
      @descriptors.wake
    rescue IOError, SystemCallError
      nil # closed meanwhile: the scheduler polls no more
    end
  end
end

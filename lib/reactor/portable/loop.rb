# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # The loop: begins and ends waits, hands over control, and takes turns. A turn asks which descriptors are ready and which
    # timers are due.

    # Resumes between two polls, so that many ready fibers cannot starve the descriptors.
    MAX_RESUMES_PER_POLL = 64

    # The most seconds between two polls while fibers wait for descriptors, because C code may close or replace a descriptor
    # without notice.
    MAX_SLEEP = 1.0
    private_constant :MAX_RESUMES_PER_POLL, :MAX_SLEEP

    private

    # --- waits -----------------------------------------------------------------------------------------------------

    def begin_wait(kind) = @waits[Fiber.current] = Wait.new(Fiber.current, kind, @waits[Fiber.current])

    # Begins a wait that an unblock ends. The VM has listed the fiber as waiting already, and lets other threads run at each
    # branch and at the end of each call, even of a C function (`vm_pop_frame`). So an unblock may come before the wait is
    # recorded; it is kept for the wait.
    def begin_block(kind)
      outer, @beginning = @beginning, true # not a call; must be the first line
      wait = begin_wait(kind)
      end_block(wait) if @early_unblocks.delete(Fiber.current)
      wait
    ensure
      @beginning = outer
    end

    # Lets other fibers run until the wait ends. Cleans up, however it ends.
    #
    # @param duration [Numeric, nil] seconds after which the wait ends; 0: it ends at this fiber's next turn
    # @param lenient [Boolean] whether a negative duration counts as 0, and an infinite one is allowed
    # @yield instead of running the next fiber for the first time
    def park(wait, duration = nil, lenient: false)
      seconds = lenient ? Durations.lenient_seconds(duration) : Durations.seconds(duration)
      return ForkedChildHooks.block(seconds) { wait.queued } unless may_park?(wait.outer)

      @recorder.counts[:parks] += 1
      find_kill
      wait.parked_at = @clock
      @descriptors.add(wait) if wait.masks
      set_time_limit(wait, seconds) if seconds
      yield if block_given?
      run_next until wait.woken
      return unless wait.error

      wait.error.equal?(:cancel) ? throw(wait.fiber) : raise(*wait.error)
    ensure
      end_wait(wait)
    end

    # Parks on several IOs.
    #
    # @param lookups [Array<Lookup>] the wait ends, too, when any of these lookups ends
    # @return [Integer, false] all events that occurred, or false
    def wait_on(masks, seconds, kind = :io, lookups = [])
      wait = begin_wait(kind)
      wait.masks = masks
      wait.events = 0
      lookups.each do |lookup|
        lookup.on_done do
          enqueue(wait)
          wake_poll
        end
      end
      park(wait, seconds)
      wait.events.zero? ? false : wait.events
    end

    # Sleeps briefly, until Process.wait may have a result. The longer the wait has lasted, the longer it sleeps. (Process.wait on
    # a thread would take the child, and lose it when the wait is interrupted.)
    #
    # @param since [Float] when the wait began, on the real clock
    def await_child(_pid, _flags, since)
      waited = Clock.real - since
      moment = (waited / 4.0).clamp(0.001, 0.05)
      return kernel_sleep(moment) unless @timers.virtual_now

      # Children live in real time, so they get `settle` seconds of it before the clock may jump. After that, each sleep is longer
      # than `settle`, because otherwise virtual time would never advance.
      moment = 2 * @timers.settle + 0.005 if waited > @timers.settle
      run_on_own_thread { sleep(moment) }
    end

    def set_time_limit(wait, seconds)
      return wait.timer = @timers.add(seconds, wait) unless seconds.zero?

      alone = @ready.empty?
      enqueue(wait)
      poll if alone # a fiber that only yields must not starve the descriptors
    end

    # Ends the fiber's waits in {PortableScheduler#block} and {PortableScheduler#kernel_sleep}.
    def end_blocks(fiber)
      @early_unblocks[fiber] = true # before reading @waits: #begin_block writes to @waits, then reads @early_unblocks
      wait = @waits[fiber]
      @early_unblocks.delete(fiber) unless wait.nil? && (@beginning || overridden?)
      while wait
        end_block(wait) if wait.blocks? && !wait.queued
        wait = wait.outer
      end
      wake_poll
      nil
    end

    def end_block(wait)
      wait.events = :unblocked
      enqueue(wait)
    end

    def end_wait(wait)
      wait.done = true
      @timers.remove(wait.timer) if wait.timer
      @descriptors.remove(wait) if wait.masks
      wait.late&.each { |delivery| enqueue(delivery) }
      wait.outer ? @waits[wait.fiber] = wait.outer : @waits.delete(wait.fiber)
      # A queued entry, or the caller of a new fiber, must not keep a fiber alive.
      wait.fiber = wait.outer = nil
    end

    # --- the ready queue -------------------------------------------------------------------------------------------

    # Queues a wait that has ended, or a delivery that is due. The append takes effect in one step: another thread or a trap
    # handler may run before or after it.
    def enqueue(entry)
      return if entry.queued

      @ready.push(entry)
      entry.queued = true
    end

    # Serves the first entry of the ready queue, or polls.
    def run_next
      return poll if @resumes_since_poll >= MAX_RESUMES_PER_POLL || @ready.empty?

      entry = @ready.first
      if entry.done
        @ready.shift
      elsif entry.is_a?(Delivery)
        deliver(entry)
      elsif entry.is_a?(Watch)
        start_watch(entry)
      elsif entry.fiber.equal?(Fiber.current)
        entry.woken = true
        @ready.shift
      else
        resume(entry)
      end
    end

    def resume(entry)
      @resumes_since_poll += 1
      @recorder.counts[:switches] += 1
      entry.woken = true
      entry.done = true if entry.kind == :stray
      entry.kind == :stray ? switch_to_new(entry.fiber) : switch(entry.fiber)
    rescue FiberError => error
      raise unless entry.kind == :stray && refused?(error) # the fiber is no stray: it waits inside an Enumerator or for one
    end

    # Hands control to another fiber. Control comes back in one of three ways:
    #
    # * Another fiber has resumed this one, because it is this one's turn.
    # * A fiber has ended, and Ruby has continued with the fiber at the end of the root fiber's chain of resumes: this one. The wait
    # of this fiber has not ended, so it runs the next fiber.
    # * A fiber has called Fiber#raise or Fiber#kill on this one. The caller has lost control without parking, so it is queued
    # here.
    #
    # Ruby raises the kill of a killed fiber at every switch back to it. Repetitions are dropped, so that ensure clauses can wait.
    #
    # @yield instead of the transfer
    def switch(fiber, *arguments)
      current = Fiber.current
      @running = fiber
      answer = block_given? ? yield : fiber.transfer(*arguments)
      @running = current
      ended = true
      answer
    rescue Exception # rubocop:disable Lint/RescueException -- only recorded: the fiber's owner may have been killed
      ended = true
      @suspects[@owners[current]] = true if @owners.key?(current)
      raise
    ensure
      unless ended
        repeated = @killed[current]
        @killed[current] = true
      end
      stray = @running
      @running = current
      if stray && !stray.equal?(current) && stray.alive? && !refused?($!) && !unborn?(stray)
        @ready.unshift(Wait.new(stray, :stray, nil, nil, true))
      end
      return if repeated # rubocop:disable Lint/EnsureReturn -- it drops the kill
    end

    # Called before a wait. When a fiber is killed while it waits for another fiber (an Enumerator's, for example), Ruby first raises
    # an error in that other fiber, and then the kill in this one, unseen by any switch. A switch to an empty fiber reveals it.
    def find_kill
      fiber = Fiber.current
      return if @suspects.empty? || @killed[fiber] || !@suspects.key?(@owners[fiber] || fiber)

      begin
        Fiber.new(storage: nil) { nil }.resume
        @suspects.delete(fiber)
        ended = true
      rescue Exception # rubocop:disable Lint/RescueException -- only recorded
        ended = true
        raise
      ensure
        unless ended
          @killed[fiber] = true
          return # rubocop:disable Lint/EnsureReturn -- it drops the kill
        end
      end
    end

    # Whether this error means that a transfer did not take place.
    def refused?(error) = error.is_a?(FiberError) && error.message.start_with?("attempt to transfer to a ")

    # Whether a live fiber has never had control, because there was no memory for its stack.
    def unborn?(fiber) = fiber.alive? && fiber.backtrace.to_a.empty?

    # Gives control to a new fiber.
    def switch_to_new(fiber, *arguments)
      return switch(fiber, *arguments) unless Fiber.current.blocking? && @starter.usable?

      switch(fiber) { @starter.start(fiber, *arguments) }
    end

    # Records on whose behalf the current fiber runs. If it is an Enumerator's, the last fiber that had control has resumed it,
    # directly or indirectly.
    def note_owner
      fiber = Fiber.current
      return if @live.key?(fiber) || @running.nil? || fiber.equal?(@running)

      owner = @owners[@running] || @running
      @owners[fiber] = owner unless owner.equal?(fiber)
    end

    # @param wait [Wait, nil] the fiber's wait before this one
    # @return [Boolean] false if the hook must do what Ruby does without a scheduler
    def may_park?(wait = @waits[Fiber.current]) = enter && !interrupts?(wait)

    # Whether a trap handler or a finalizer has called a hook in the middle of a poll, or of a wait of this fiber or of its owner.
    # No other fiber may run then.
    def interrupts?(wait = @waits[Fiber.current])
      note_owner
      (@polling && @poller.alive?) || [wait, @waits[@owners[Fiber.current]]].any? { |outer| outer&.parked? }
    end

    # --- polls -----------------------------------------------------------------------------------------------------

    # Asks which descriptors are ready, and waits for an answer if no fiber is ready.
    #
    # IO.select runs in a separate, blocking fiber. It calls no hooks, because the fiber is blocking. Interrupt, Thread#raise and
    # Thread#kill end only this separate fiber, and Ruby raises them in the fiber at the end of the root fiber's chain of resumes;
    # the fiber that polls continues to wait, unharmed.
    #
    # The first such fiber allocates its stack at once, because polling must work even when other fibers have used up all memory.
    #
    # A fiber made in a trap handler never runs trap handlers, even after that handler has ended. So each poller makes the next
    # one.
    def poll
      @poller = @next_poller unless @poller.alive?
      switch(@poller, Fiber.current)
    end

    def start_poller
      @poller = new_poller
      @poller.transfer(nil, Fiber.current)
    end

    # A poller whose first switch passes a maker returns control to that maker before it polls.
    def new_poller
      Fiber.new(blocking: true, storage: nil) do |asker, maker|
        @next_poller = new_poller
        asker = maker.transfer if maker
        while asker
          poll_once
          @running = asker # set before the transfer, because a trap handler may run as soon as the asker has control
          asker = asker.transfer
        end
      end
    end

    def poll_once
      again = @resumes_since_poll.zero?
      @resumes_since_poll = 0
      @recorder.end_turn
      @polling = true # before reading the ready queue: from now on, a thread that enqueues writes to the pipe
      jump = false
      timeout = @ready.empty? ? poll_timeout { jump = true } : 0
      sleeps = !timeout&.zero?
      @recorder.begin_sleep if sleeps
      found = @descriptors.select(timeout)
      found ||= @descriptors.select(0) if jump # a non-waiting IO.select interrupted by a signal misses ready descriptors
      found&.each { |wait, error| error ? refuse(wait, error) : enqueue(wait) }
      @timers.jump if jump && !found && @ready.empty?
      fire_timers
      # Raises only after a second sleep in vain: a thread may have been woken but not have run yet, and nothing shows that.
      raise_deadlock if again && !found
    ensure
      @recorder.end_sleep if sleeps
      @polling = false
    end

    # @yield if the virtual clock may jump afterwards
    # @return [Numeric, nil] seconds this thread may sleep in the kernel
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

    # Whether only an unblock can wake a fiber.
    def unblock_only?
      !@live.empty? && @timers.size.zero? && @descriptors.empty? && @waits.values.count(&:forever?) >= @live.size
    end

    # Ruby detects deadlocks of threads, but not of fibers.
    def raise_deadlock
      return if @unblock_only_sleeps.zero? || !@ready.empty? || !respond_to?(:deadlock_message, true)

      message = deadlock_message
      raise VM::FATAL, message if message
    end

    # Queues an entry before removing its timer, so an exception in between loses nothing.
    def fire_timers
      @clock = Clock.now
      now = @timers.virtual_now || @clock
      while (timer = @timers.first) && timer.at <= now
        enqueue(timer.entry)
        @recorder.lateness.record(now - timer.at)
        @timers.remove(timer)
      end
    end

    # Called when IO.select raises for an IO of this wait.
    def refuse(wait, error)
      # The kernel does not poll the descriptor of this watcher. If C code has closed the descriptor, the watcher's block will
      # find out.
      return interrupt_watch(wait, :closed) if wait.is_a?(Watch) && wait.target.first.closed?

      wait.is_a?(Watch) ? wait.events |= wait.target.last : wait.error ||= [error.class, error.message]
      enqueue(wait)
    end

    # Ends the kernel's sleep, if any. Any thread may call this.
    def wake_poll
      return if !@polling || forked_child?

      @recorder.counts[:wakeups] += 1
      @descriptors.wake
    rescue IOError, SystemCallError
      nil # closed meanwhile, so the scheduler does not poll any more
    end
  end
end

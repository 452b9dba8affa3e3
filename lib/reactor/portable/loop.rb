# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # The loop: how a wait begins and ends, how control changes hands, and a turn, in which it is asked what has become ready and whose
    # time has come.

    # Resumes between two polls, so that many ready fibers cannot keep descriptors waiting.
    MAX_RESUMES_PER_POLL = 64

    # Seconds between two polls at most while descriptors are waited for, because C code does not tell that it has closed or
    # replaced one.
    MAX_SLEEP = 1.0
    private_constant :MAX_RESUMES_PER_POLL, :MAX_SLEEP

    private

    # --- waits -----------------------------------------------------------------------------------------------------

    def begin_wait(kind) = @waits[Fiber.current] = Wait.new(Fiber.current, kind, @waits[Fiber.current])

    # Begins a wait that an unblock ends. The VM has listed the fiber as waiting already, and lets other threads run at each branch and
    # at the end of each call, also of one in C (`vm_pop_frame`). So an unblock that comes before the wait is noted is kept for it.
    def begin_block(kind)
      outer, @beginning = @beginning, true # not a call; nothing may stand before it
      wait = begin_wait(kind)
      end_block(wait) if @early_unblocks.delete(Fiber.current)
      wait
    ensure
      @beginning = outer
    end

    # Gives the thread away until the wait is over. However it ends, nothing is left of it afterwards.
    #
    # @param duration [Numeric, nil] seconds after which it ends by itself; 0: when its turn comes again
    # @param lenient [Boolean] whether a negative duration counts as 0, and an infinite one is allowed
    # @yield instead of the first look at the ready queue
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

    # Parks on each of the IOs.
    #
    # @param lookups [Array<Lookup>] end the wait as well
    # @return [Integer, false] the events of all that came, or false
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

    # Waits for a moment until Process.wait may have an answer. The longer the wait has taken, the longer is the moment. (A
    # thread in Process.wait would take the child, and lose it if the wait is interrupted.)
    #
    # @param since [Float] when the wait began, on the real clock
    def await_child(_pid, _flags, since)
      waited = Clock.real - since
      moment = (waited / 4.0).clamp(0.001, 0.05)
      return kernel_sleep(moment) unless @timers.virtual_now

      # Children live in real time, so they get `settle` seconds of it before the clock may jump. After that the moment is
      # longer than it takes to be idle, or virtual time would never go on.
      moment = 2 * @timers.settle + 0.005 if waited > @timers.settle
      run_on_own_thread { sleep(moment) }
    end

    def set_time_limit(wait, seconds)
      return wait.timer = @timers.add(seconds, wait) unless seconds.zero?

      alone = @ready.empty?
      enqueue(wait)
      poll if alone # a fiber that only yields must not keep descriptors waiting
    end

    # Ends the fiber's waits in {PortableScheduler#block} and {PortableScheduler#kernel_sleep}.
    def end_blocks(fiber)
      @early_unblocks[fiber] = true # before the look at the wait: #begin_block notes that first, and looks here afterwards
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
      # An entry that is still queued, or the caller of a new fiber, must keep no fiber alive.
      wait.fiber = wait.outer = nil
    end

    # --- the ready queue -------------------------------------------------------------------------------------------

    # Queues a wait that is over, or a delivery that is due. The append is the one step that counts: another thread or a
    # trap handler may run before and after it.
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
      raise unless entry.kind == :stray && refused?(error) # it was not left behind after all, but waits inside an Enumerator or for one
    end

    # Hands control to another fiber. It comes back in one of three ways:
    #
    # * Another fiber has resumed this one, because its turn has come.
    # * A fiber has ended, and Ruby went on with the fiber at the end of the root fiber's chain of resumes, which is this
    #   one. Its wait is not over, so it runs the next fiber.
    # * A fiber has called Fiber#raise or Fiber#kill on this one. That fiber is left behind without having parked, so it is
    #   queued here.
    #
    # Ruby raises the kill of a killed fiber on every switch back into it. Repeats are dropped, so that ensure clauses can wait.
    #
    # @yield instead of the transfer
    def switch(fiber, *arguments)
      current = Fiber.current
      @running = fiber
      answer = block_given? ? yield : fiber.transfer(*arguments)
      @running = current
      ended = true
      answer
    rescue Exception # rubocop:disable Lint/RescueException -- only noted: the fiber's owner may have been killed
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

    # Before a wait: if the fiber was killed while it waited for another fiber, as for an Enumerator, Ruby has raised an error in
    # that one, and then the kill here, which no switch has seen. A switch to an empty fiber tells.
    def find_kill
      fiber = Fiber.current
      return if @suspects.empty? || @killed[fiber] || !@suspects.key?(@owners[fiber] || fiber)

      begin
        Fiber.new(storage: nil) { nil }.resume
        @suspects.delete(fiber)
        ended = true
      rescue Exception # rubocop:disable Lint/RescueException -- only noted
        ended = true
        raise
      ensure
        unless ended
          @killed[fiber] = true
          return # rubocop:disable Lint/EnsureReturn -- it drops the kill
        end
      end
    end

    # Whether a transfer did not take place.
    def refused?(error) = error.is_a?(FiberError) && error.message.start_with?("attempt to transfer to a ")

    # Whether a living fiber has never had control, because there was no memory for its stack.
    def unborn?(fiber) = fiber.alive? && fiber.backtrace.to_a.empty?

    # Gives a new fiber control.
    def switch_to_new(fiber, *arguments)
      return switch(fiber, *arguments) unless Fiber.current.blocking? && @starter.usable?

      switch(fiber) { @starter.start(fiber, *arguments) }
    end

    # The current fiber may be an Enumerator's: then the fiber that had control last has resumed it, or one that did.
    def note_owner
      fiber = Fiber.current
      return if @live.key?(fiber) || @running.nil? || fiber.equal?(@running)

      owner = @owners[@running] || @running
      @owners[fiber] = owner unless owner.equal?(fiber)
    end

    # @param wait [Wait, nil] what the fiber waited for before
    # @return [Boolean] false where the hook does what Ruby does without a scheduler
    def may_park?(wait = @waits[Fiber.current]) = enter && !interrupts?(wait)

    # Whether a trap handler or a finalizer calls a hook in the middle of a poll, or of a wait of this fiber or of the one that has
    # resumed it. No other fiber may run then.
    def interrupts?(wait = @waits[Fiber.current])
      note_owner
      (@polling && @poller.alive?) || [wait, @waits[@owners[Fiber.current]]].any? { |outer| outer&.parked? }
    end

    # --- polls -----------------------------------------------------------------------------------------------------

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
      again = @resumes_since_poll.zero?
      @resumes_since_poll = 0
      @recorder.end_turn
      @polling = true # set before the ready queue is looked at: a thread that enqueues after that writes to the pipe
      jump = false
      timeout = @ready.empty? ? poll_timeout { jump = true } : 0
      sleeps = !timeout&.zero?
      @recorder.begin_sleep if sleeps
      found = @descriptors.select(timeout)
      found ||= @descriptors.select(0) if jump # IO.select that may not wait misses what is ready if a signal cuts it short
      found&.each { |wait, error| error ? refuse(wait, error) : enqueue(wait) }
      @timers.jump if jump && !found && @ready.empty?
      fire_timers
      # Only if the last sleep was in vain as well: a thread may have been woken and not run yet, and nothing tells.
      raise_deadlock if again && !found
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
      return interrupt_watch(wait, :closed) if wait.is_a?(Watch) && wait.target.first.closed?

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

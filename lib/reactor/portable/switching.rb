# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # The ready queue, and how control changes hands.

    # Resumes between two polls, so that many ready fibers cannot keep descriptors waiting.
    MAX_RESUMES_PER_POLL = 64
    private_constant :MAX_RESUMES_PER_POLL

    private

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
    rescue Exception # rubocop:disable Lint/RescueException -- only noted
      ended = true
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

    # Whether a transfer did not take place.
    def refused?(error) = error.is_a?(FiberError) && error.message.start_with?("attempt to transfer to a ")

    # Whether a living fiber has never had control, because there was no memory for its stack.
    def unborn?(fiber) = fiber.alive? && fiber.backtrace.to_a.empty?

    # Gives a new fiber control.
    def switch_to_new(fiber, *arguments)
      return switch(fiber, *arguments) unless Fiber.current.blocking? && @starter.usable?

      switch(fiber) { @starter.start(fiber, *arguments) }
    end

    # Runs a block in a new fiber, which need not give control back: it is not queued if it stays suspended.
    def in_helper_fiber
      switch_to_new(Fiber.new { @running = nil; yield })
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
  end
end

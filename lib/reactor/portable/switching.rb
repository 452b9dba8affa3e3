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
      elsif waits_for_resumed?(entry)
        @ready.shift
        entry.held = true
      elsif entry.fiber.equal?(Fiber.current)
        entry.woken = true # this fiber's own wait, or one that it interrupts
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
      switch(entry.fiber)
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

    # Runs a block in a new fiber, which need not give control back: it is not queued if it stays suspended.
    def in_helper_fiber
      switch_to_new(Fiber.new { @running = nil; yield })
    end

    # The current fiber may be an Enumerator's: then the fiber that had control last has resumed it, or one that did.
    def note_owner
      fiber = Fiber.current
      return if @live.key?(fiber) || @running.nil? || fiber.equal?(@running)

      @owners[fiber] = @owners[@running] || (@running.equal?(@poller) ? @asker : @running)
    end

    # Whether the fiber of the wait cannot get control, because it waits for one that it has resumed in the middle of the wait. If
    # the wait is over, the fiber goes on when the other one waits no more.
    def waits_for_resumed?(wait)
      inner = wait.inner
      !inner.nil? && !inner.done && wait.fiber.equal?(@owners[inner.fiber])
    end
  end
end

# frozen_string_literal: true

require_relative "../durations"
require_relative "../hooks_in_forked_child"

module Reactor
  class PortableScheduler
    # One park of one fiber.
    #
    # - `fiber`: the fiber that waits; nil when the wait is over
    # - `kind`: :block (ended by unblock), :io (by readiness), :turn (by its turn only), :stray (see {Switching#switch})
    # - `outer`: the wait that this one interrupts, if a trap handler or a finalizer waits in the middle of another wait
    # - `inner`: the wait of a fiber that a trap handler or a finalizer has resumed in the middle of this wait, for example an
    #   Enumerator's
    # - `held`: it is out of the ready queue until `inner` is over
    # - `woken`: the fiber may go on
    # - `queued`: it is in the ready queue
    # - `done`: it is over: an event that comes for it now is dropped
    # - `events`: the events that have come
    # - `error`: arguments for raise, to be raised where the fiber waits
    # - `timer`: the {Timer} that ends it
    # - `hook`: :sleep or :block where the kind is :block, for {Inspection#fibers}; :select in a wait for several things
    # - `parked_at`: the time of the last poll when it began
    # - `late`: deliveries that come again when it is over, because they must not end it
    # - `in_handler`: it is known to be that of a trap handler
    #
    # A Struct, because making one runs no Ruby code: no other thread can run meanwhile, see {PortableScheduler#block}.
    Wait = Struct.new(:fiber, :kind, :outer, :woken, :queued, :done, :events, :error, :timer, :hook, :parked_at, :late,
                      :in_handler, :inner, :held)

    # An exception on its way to a fiber wherever that waits, or the request to end (arguments nil). It takes its turn in the
    # ready queue like a {Wait}. `deferred`: it has let a wake-up go first, once. `outlasted`: it has come during a close, which it does
    # not end. That of a timeout knows the wait of the fiber, and
    # of the fiber's owner, in the middle of which its block began: nil, unless that was in a trap handler or a finalizer.
    # `in_handler`: its block began in a trap handler.
    Delivery = Struct.new(:fiber, :arguments, :queued, :done, :deferred, :outlasted, :outer, :outer_of_owner, :in_handler)

    private_constant :Wait, :Delivery

    # How a wait begins and ends.
    module Parking
      private

      # Gives the thread away until the wait is over. However it ends, nothing is left of it afterwards.
      #
      # @param duration [Numeric, nil] seconds after which it ends by itself; 0: when its turn comes again
      # @param lenient [Boolean] whether a negative duration counts as 0, and an infinite one is allowed
      # @yield instead of the first look at the ready queue
      def park(wait, duration = nil, lenient: false)
        seconds = lenient ? Durations.lenient_seconds(duration) : Durations.seconds(duration)
        return ForkedChildHooks.block(seconds) { wait.queued } unless enter

        @counts[:parks] += 1
        wait.in_handler = @limits.positive? && in_trap_handler?
        @interrupted[wait.fiber] = wait if wait.outer || wait.in_handler
        note_owner
        note_interrupted_by(wait) unless @live.key?(wait.fiber)
        find_kill if !@suspects.empty? && kill_suspected?
        wait.parked_at = @clock
        set_time_limit(wait, seconds) if seconds
        trace_event(kind_of_park(wait), wait.fiber, wait)
        yield if block_given?
        run_next until wait.woken
        trace_event(:unpark, wait.fiber)
        raise(*wait.error) if wait.error && !wait.error.equal?(:cancel)
        throw(wait.fiber) if wait.error
      ensure
        end_wait(wait)
      end

      def check_interrupt(fiber, exception)
        raise TypeError, "exception object expected" unless Exception === exception
        raise TypeError, "a fiber, or an object that responds to raise, expected" unless Fiber === fiber || defined?(fiber.raise)
      end

      # Parks on each of the IOs.
      #
      # @param lookups [Array<Lookup>] end the wait as well
      # @return [Integer, false] the events of all that came, or false
      def wait_on(masks, seconds, lookups = [], hook = nil)
        @waits[Fiber.current] = wait = Wait.new(Fiber.current, :io, @waits[Fiber.current])
        wait.hook = hook
        wait.events = 0
        lookups.each do |lookup|
          lookup.on_done do
            enqueue(wait)
            wake_poll
          end
        end
        each_watch(masks) { |waits_of, io| (waits_of[io] ||= {}.compare_by_identity)[wait] = true }
        park(wait, seconds)
        wait.events.zero? ? false : wait.events
      ensure
        each_watch(masks) do |waits_of, io|
          waits = waits_of[io] or next
          waits.delete(wait)
          waits_of.delete(io) if waits.empty?
        end
      end

      def each_watch(masks)
        masks.each do |io, mask|
          @watched.each { |event, waits_of| yield waits_of, io if mask.anybits?(event) }
        end
      end

      def set_time_limit(wait, seconds)
        if seconds.zero?
          alone = @ready.empty?
          enqueue(wait)
          poll if alone # a fiber that only yields must not keep descriptors waiting
        else
          wait.timer = @timers.add(from_now(seconds), wait)
        end
      end

      # Ends the fiber's waits in {PortableScheduler#block} and {PortableScheduler#kernel_sleep}.
      def end_blocks(fiber)
        wait = @waits[fiber]
        @early_unblocks[fiber] = true if wait.nil? && overridden?
        while wait
          if wait.kind == :block && !wait.queued
            wait.events = :unblocked
            enqueue(wait)
          end
          wait = wait.outer
        end
        wake_poll
        nil
      end

      def end_wait(wait)
        wait.done = true
        @timers.remove(wait.timer) if wait.timer
        wait.late&.each { |delivery| enqueue(delivery) }
        fiber = wait.fiber
        @interrupted.delete(fiber)
        queue_interrupted_by(wait) unless @live.key?(fiber)
        wait.outer ? resume_outer(fiber, wait.outer) : @waits.delete(fiber)
        wait.fiber = wait.outer = wait.inner = nil # an entry that is still queued, or the caller of a new fiber, must keep no fiber alive
      end

      # If the owner of the fiber is in the middle of a wait, a trap handler or a finalizer there has resumed this fiber.
      def note_interrupted_by(wait)
        interrupted = @waits[@owners[wait.fiber]]
        interrupted.inner = wait if interrupted && !interrupted.equal?(wait)
      end

      # If the interrupted wait has ended meanwhile, it is in the ready queue again.
      def queue_interrupted_by(wait)
        interrupted = @waits[@owners[wait.fiber]]
        return unless interrupted&.held && wait.equal?(interrupted.inner)

        interrupted.held = false
        @ready.unshift(interrupted)
      end

      # Whether the fiber of the wait cannot get control, because it waits for one that it has resumed in the middle of the wait. If
      # the wait is over, the fiber goes on when the other one waits no more.
      def waits_for_resumed?(wait)
        inner = wait.inner
        !inner.nil? && !inner.done && wait.fiber.equal?(@owners[inner.fiber])
      end

      # The trap handler or the finalizer that has interrupted this wait waits no more. If the wait has ended meanwhile, it is in
      # the ready queue again, because its fiber may be about to poll.
      def resume_outer(fiber, wait)
        @waits[fiber] = wait
        @interrupted[fiber] = wait if wait.outer || wait.in_handler
        @ready.unshift(wait) if wait.woken
      end

      # Whether a trap handler runs in the current fiber: it can take no lock.
      def in_trap_handler?
        @handler_check.synchronize { false }
      rescue ThreadError
        true
      end

      # Queues a wait that is over, or a delivery that is due. The append is the one step that counts: another thread or a
      # trap handler may run before and after it.
      def enqueue(entry)
        return if entry.queued

        @ready.push(entry)
        entry.queued = true
        trace_event(:ready, entry.fiber) if @trace && entry.is_a?(Wait) && entry.fiber
      end
    end
    private_constant :Parking
  end
end

# frozen_string_literal: true

require_relative "../clock"
require_relative "../durations"
require_relative "../vm"

module Reactor
  class PortableScheduler
    # How the scheduler asks the kernel, by IO.select.
    module Polling
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
      # A fiber that is made in a trap handler never runs trap handlers, also when that handler has ended. So #initialize makes the
      # first such fiber, and each makes the next one. If a trap handler that runs in the fiber has resumed another one, for example
      # an Enumerator's, and that one waits, the next fiber polls.
      def poll
        @poller = @next_poller&.alive? ? @next_poller : new_poller if !@poller&.alive? || @polling.key?(@poller)
        switch(@poller, @asker = Fiber.current)
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
          asker = answer(asker) while asker
        end
      end

      # @return [Fiber] the next one that polls
      def answer(asker)
        poll_once(asker)
        @running = asker # here, because a trap handler may run as soon as that one has control
        asker.transfer
      end

      # A trap handler may run in the middle of a poll, and what it waits for polls as well. The poll that it has interrupted must not
      # sleep afterwards: other threads do not know of that sleep.
      def poll_once(asker)
        inside = !@polling.empty?
        @wake_reader.read_nonblock(4096, exception: false) if inside
        @polling[Fiber.current] = asker
        poll_kernel
      ensure
        @polling.delete(Fiber.current)
        @wake_writer.write_nonblock(".", exception: false) if inside && !@wake_writer.closed?
      end

      def poll_kernel
        remove_timeouts_of_collected
        @resumes_since_poll = 0
        @polled_at = Clock.now
        end_turn
        @counts[:turns] += 1
        @sleeping = true # set before the ready queue is looked at: a thread that enqueues after that writes to the pipe
        @may_advance = false
        timeout = @ready.empty? ? poll_timeout : 0
        sleeps = !timeout&.zero?
        if sleeps
          @counts[:sleeps] += 1
          begin_sleep
        end
        trace_event(sleeps ? :sleep : :turn)
        asked = [[@wake_reader, *@watched[IO::READABLE].keys], @watched[IO::WRITABLE].keys, @watched[IO::PRIORITY].keys]
        found = IO.select(*asked, timeout)
        @sleeping = false
        trace_event(:turn) if sleeps
        wake_ready(*found) if found
        advance_to_next_timer if @may_advance && !found && @ready.empty?
        fire_timers
        raise_deadlock unless found
      rescue IOError, FrozenError, Errno::EBADF
        raise unless fail_closed || closed_unwatched?(asked) # raised by another thread
      ensure
        end_sleep if sleeps
        @sleeping = false
        trace_event(:turned)
      end

      # @return [Numeric, nil] seconds that the kernel may let this thread sleep
      def poll_timeout
        @may_advance = may_advance?
        return wakeable_from_outside? ? @settle : 0 if @may_advance

        @unblock_only_sleeps = unblock_only? ? @unblock_only_sleeps + 1 : 0
        return 0.1 * 2**[@unblock_only_sleeps - 1, 4].min if @unblock_only_sleeps.positive?

        left = [Clock.left(@timers.deadline, Clock.now), Durations::FAR].min if @timers.deadline && !@virtual_now
        idle = MAX_SLEEP unless @watched.each_value.all?(&:empty?)
        [left, idle].compact.min
      end

      # Whether nothing but an unblock can wake a fiber.
      def unblock_only?
        !@live.empty? && @timers.size.zero? && @watched.each_value.all?(&:empty?) &&
          @waits.each_value.count { |wait| waits_for_unblock_only?(wait) } >= @live.size
      end

      def waits_for_unblock_only?(wait) = !wait.nil? && wait.kind == :block && !wait.queued && wait.timer.nil?

      # Ruby itself finds threads that all wait for one another. It knows nothing of fibers.
      def raise_deadlock
        return if @unblock_only_sleeps.zero? || !@ready.empty? || !respond_to?(:deadlock_message, true)

        message = deadlock_message
        raise VM::FATAL, message if message
      end

      def wake_ready(readable, writable, priority)
        @wake_reader.read_nonblock(4096, exception: false) if readable.first.equal?(@wake_reader)
        { IO::READABLE => readable, IO::WRITABLE => writable, IO::PRIORITY => priority }.each do |event, ios|
          ios.each do |io|
            waits = @watched[event][io] or next
            # Trap handlers have interrupted these waits, which are over, and wait themselves, or for an Enumerator.
            next @watched[event].delete(io) if waits.each_key.all? { |wait| wait.is_a?(Wait) && (wait.woken || wait.held) }

            waits.each_key do |wait|
              wait.events |= event
              enqueue(wait)
            end
          end
        end
      end

      # Queues first and removes afterwards: an exception in between loses nothing.
      def fire_timers
        @clock = Clock.now
        now = @virtual_now || @clock
        timeouts = nil
        while (timer = @timers.first) && timer.at <= now
          (timeouts ||= []) << timer if Delivery === timer.entry
          enqueue(timer.entry)
          @lateness.record(now - timer.at)
          @timers.remove(timer)
        end
        put_outermost_first(timeouts) if timeouts && timeouts.size > 1
      end

      # Of a fiber's timeouts that are due at once the outermost is raised first, as in plain Ruby. They exchange their places in
      # one step: an exception before it changes nothing.
      def put_outermost_first(timeouts)
        instead = {}.compare_by_identity
        timeouts.group_by { |timer| timed_fiber(timer.entry) }.each_value do |nested|
          nested.zip(nested.sort_by(&:number)) { |timer, other| instead[timer.entry] = other.entry } if nested.size > 1
        end
        queued = @ready.dup
        @ready[0, queued.size] = queued.map { |entry| instead.fetch(entry, entry) } unless instead.empty?
      end

      # @return [Fiber, nil] the fiber of the timeout, or the fiber that an Enumerator's runs for; nil if it has been collected
      def timed_fiber(delivery)
        fiber = delivery.fiber || @limited[delivery]
        @owners[fiber] || fiber
      end

      # If fibers wait for an IO that is closed, frozen, or not open in this direction, the error is theirs. IO.select is not asked
      # again for the IO, because it would raise each time until the fibers have left, and a trap handler may wait in one.
      #
      # @return [Boolean] whether there was one
      def fail_closed
        found = false
        @watched.each do |event, waits_of|
          waits_of.each do |io, waits|
            ready_now(io, event)
          rescue IOError, FrozenError, SystemCallError => error
            found = true
            waits_of.delete(io)
            waits.keys.each do |wait|
              next fail_watch(wait) if wait.is_a?(Watch)

              wait.error ||= [error.class, error.message]
              enqueue(wait)
            end
          end
        end
        found
      end

      # Whether a trap handler has ended the last wait for an IO and closed it, in the middle of the poll. The next one does not ask for it.
      def closed_unwatched?(asked) = !@wake_reader.closed? && asked&.flatten&.any?(&:closed?)

      # @return [Integer, nil] those of the events that have come
      def ready_now(io, events)
        found = Fiber.blocking { IO.select(*lists_of({ io => events }), 0) }
        return unless found

        [IO::READABLE, IO::WRITABLE, IO::PRIORITY].zip(found).sum { |event, ios| ios.empty? ? 0 : event }
      rescue Errno::EBADF
        raise unless io.closed? # by another thread, after IO.select had looked whether it is

        raise IOError, "stream closed in another thread"
      end

      def lists_of(masks)
        [IO::READABLE, IO::WRITABLE, IO::PRIORITY].map { |event| masks.filter_map { |io, mask| io if mask.anybits?(event) } }
      end

      # Ends the kernel's sleep, if there is one. Any thread may call it.
      def wake_poll
        return if !@sleeping || forked_child?

        @counts[:wakeups] += 1
        @wake_writer.write_nonblock(".", exception: false)
      rescue IOError, SystemCallError
        nil # closed meanwhile: the scheduler sleeps no more
      end
    end
    private_constant :Polling
  end
end

# frozen_string_literal: true

require_relative "uninterruptible_waits"

module Reactor
  class PortableScheduler
    # How control changes hands.
    module Switching
      # Resumes between two polls, so that many ready fibers cannot keep descriptors waiting.
      MAX_RESUMES_PER_POLL = 64
      private_constant :MAX_RESUMES_PER_POLL

      private

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
        @counts[:switches] += 1
        entry.woken = true
        return switch(entry.fiber) unless entry.kind == :stray

        entry.done = true
        begin
          switch(entry.fiber)
        rescue FiberError => error
          raise unless refused?(error) # it was not left behind after all, but waits inside an Enumerator or for one
        end
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
      def switch(fiber, *arguments)
        current = Fiber.current
        @running = fiber
        answer = fiber.transfer(*arguments)
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
        trace_event(:control, current)
        if stray && !stray.equal?(current) && stray.alive? && !refused?($!) && !unborn?(stray)
          @ready.unshift(Wait.new(stray, :stray, nil, nil, true))
        end
        return if repeated # rubocop:disable Lint/EnsureReturn -- it drops the kill
      end

      def kill_suspected?
        fiber = Fiber.current
        !@killed[fiber] && @suspects.key?(@owners[fiber] || fiber)
      end

      # Before a wait: if the fiber was killed while it waited for another fiber, as for an Enumerator, Ruby has raised an error in
      # that one, and then the kill here, which no switch has seen. A switch to an empty fiber tells.
      def find_kill
        fiber = Fiber.current
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

      # Whether a transfer did not take place.
      def refused?(error) = error.is_a?(FiberError) && error.message.start_with?("attempt to transfer to a ")

      # Whether a living fiber has never had control, because there was no memory for its stack.
      def unborn?(fiber) = fiber.alive? && fiber.backtrace.to_a.empty?

      # Gives a new fiber control.
      #
      # If there is no memory for its stack and the current fiber is blocking, the VM counts one blocking fiber too few from then on, and no
      # fiber has a scheduler any more. So a fiber that is not blocking makes the switch.
      def switch_to_new(fiber, *arguments)
        return switch(fiber, *arguments) unless Fiber.current.blocking? && @starter.alive?

        error = switch(@starter, Fiber.current, fiber, arguments)
        raise error if error.is_a?(FiberError)
      end

      # It gets its stack at once.
      def make_starter
        @starter = Fiber.new(blocking: false, storage: nil) do |maker|
          asker, @running, arguments = maker.transfer
          while true
            asker, @running, arguments = begin
              @running.transfer(*arguments)
            rescue FiberError => error
              asker.transfer(error)
            end
          end
        end
        @starter.transfer(Fiber.current)
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

      # The fiber to raise in. If the fiber of the timeout does not wait itself, because it has resumed another fiber, or because it
      # is a suspended Enumerator's, that is its owner: Ruby passes the exception on to the fiber that waits. nil if the fiber of
      # the timeout has been collected.
      def receiver(delivery)
        fiber = delivery.fiber || @limited[delivery]
        owner = @owners[fiber]
        return fiber if @waits.key?(fiber) || delivery.arguments.nil? || owner.nil?

        delivery.outer = delivery.outer_of_owner
        owner
      end

      # Gives an exception to a fiber.
      def deliver(delivery)
        delivery.fiber = receiver(delivery)
        return delivery.done = true unless delivery.fiber

        wait = wait_for(delivery)
        if wait&.queued && wait.kind == :block && !delivery.deferred
          # The wake-up may have handed over a lock, so it takes effect first.
          delivery.deferred = true
          @ready.push(delivery)
          @ready.shift
        elsif wait && ((delivery.outlasted = UninterruptibleWaits.closes_io?(delivery.fiber)) || handlers_alone?(wait, delivery))
          deliver_after(wait, delivery)
        elsif wait
          wait.error ||= delivery.arguments || :cancel
          @ready.unshift(wait)
          wait.queued = delivery.done = true
        elsif delivery.arguments && (handler = handler_on_behalf_of(delivery))
          # It has resumed a fiber in which a trap handler waits, and Ruby would raise there.
          deliver_after(handler, delivery)
        else
          # It does not wait itself. It has resumed a fiber that does, or it is not a fiber but a stand-in. Ruby finds the way.
          delivery.done = true
          in_helper_fiber { raise_in(delivery.fiber, delivery.arguments) } if delivery.fiber.alive?
        end
      end

      # The delivery comes again when this wait is over.
      def deliver_after(wait, delivery)
        (wait.late ||= []) << delivery
        @ready.delete_if { |entry| entry.equal?(delivery) }
        delivery.queued = false
      end

      # The wait of the delivery's fiber that it ends: not that of a trap handler in the middle of the wait around which the timeout
      # is.
      def wait_for(delivery)
        wait = innermost = @waits[delivery.fiber]
        return wait unless wait
        return (wait unless has_resumed?(wait)) unless delivery.arguments
        return if wait.equal?(delivery.outer) # the fiber itself does not wait in the block
        return wait unless wait.outer

        wait = wait.outer until wait.nil? || wait.outer.equal?(delivery.outer)
        wait || innermost
      end

      # Whether the fiber of the wait itself has resumed the one that it waits for. If it polled when the handler came, the fiber that
      # polls for it has done so.
      def has_resumed?(wait) = waits_for_resumed?(wait) && !@polling.value?(wait.fiber)

      # Whether the wait is that of a trap handler or a finalizer that has interrupted the block of the timeout where it did not
      # wait yet.
      def handlers_alone?(wait, delivery)
        delivery.arguments && wait.in_handler && !delivery.in_handler
      end

      # The wait of a trap handler or a finalizer that is inside of the timeout's block, in a fiber that the fiber of the block has
      # resumed. A handler's own timeout is inside of the handler, as is the fiber resumed there.
      def handler_on_behalf_of(delivery)
        waits_on_behalf_of(delivery.fiber, @interrupted).first unless delivery.in_handler
      end

      def waits_on_behalf_of(fiber, waits) = waits.each_value.select { |wait| fiber.equal?(@owners[wait.fiber]) }

      def raise_in(fiber, arguments)
        return fiber.raise(*arguments) if arguments

        @killed[fiber] = true # the kill unwinds it from where it has resumed another fiber
        fiber.kill
      end
    end
    private_constant :Switching
  end
end

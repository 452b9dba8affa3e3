# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # One park of one fiber.
    #
    # - `fiber`: the fiber that waits; nil when the wait is over
    # - `kind`: :block or :sleep (ended by unblock), :io or :select (by readiness), :turn (by its turn only), :stray (see
    #   {PortableScheduler#switch})
    # - `outer`: the wait that this one interrupts, if a trap handler or a finalizer waits in the middle of another wait
    # - `woken`: the fiber may go on
    # - `queued`: it is in the ready queue
    # - `done`: it is over: an event that comes for it now is dropped
    # - `masks`: the IO objects that it is for, and the events of each
    # - `events`: the events that have come; :unblocked
    # - `error`: arguments for raise, to be raised where the fiber waits; :cancel
    # - `timer`: the timer that ends it
    # - `parked_at`: the time of the last poll when it began
    # - `late`: deliveries that come again when it is over, because they must not end it
    Wait = Struct.new(:fiber, :kind, :outer, :woken, :queued, :done, :masks, :events, :error, :timer, :parked_at, :late) do
      # @return [Boolean] whether an unblock ends it
      def blocks? = kind == :block || kind == :sleep

      # @return [Boolean] whether it has begun, and is not over
      def parked? = !parked_at.nil? && !done

      # @return [Boolean] whether nothing but an unblock can end it
      def forever? = blocks? && !queued && timer.nil?

      # @return [Symbol] as in {FiberStatus}. A wait for a turn that is not queued for it is that for the end of all other fibers, which run.
      def state
        return :ready if queued

        kind == :turn ? :running : :waiting
      end

      # @return [Symbol] as in {FiberStatus}
      def hook
        return :io if masks

        blocks? ? kind : :other
      end

      # @return [Array(IO, Integer), Array(nil, 0)] the only IO object that it is for, and the events
      def target = masks&.size == 1 ? masks.first : [nil, 0]
    end

    # A wait for an IO that no fiber makes: see {Watching}. Its fiber starts in its turn in the ready queue.
    #
    # - `watcher`: the object that the program has
    # - `given`: what the program has given to be watched
    # - `transient`: the end of all fibers does not wait for it
    # - `events`: the events that have come; 0: its time is up
    # - `error`: it has no fiber: the IO was closed or reopened
    #
    # Else as in a {Wait}.
    Watch = Struct.new(:watcher, :given, :masks, :transient, :queued, :done, :events, :error, :timer) do
      def target = masks.first
    end

    # An exception on its way to a fiber wherever that waits, or the request to end (arguments nil). It takes its turn in the
    # ready queue like a {Wait}.
    #
    # - `deferred`: it has let a wake-up go first, once
    # - `outlasted`: it has come during a close, which it does not end
    Delivery = Struct.new(:fiber, :arguments, :queued, :done, :deferred, :outlasted, :timer)

    private_constant :Wait, :Watch, :Delivery
  end
end

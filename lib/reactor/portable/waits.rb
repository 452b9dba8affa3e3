# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # A single park of a fiber.
    #
    # - `fiber`: the waiting fiber; nil when the wait has ended
    # - `kind`: what ends it: :block or :sleep (an unblock), :io or :select (readiness), :turn (only its turn), :stray (see
    #   {PortableScheduler#switch})
    # - `outer`: the wait that this one interrupts, if a trap handler or a finalizer waits in the middle of another wait
    # - `woken`: whether the fiber may continue
    # - `queued`: whether it is in the ready queue
    # - `done`: whether it has ended, so that later events are dropped
    # - `masks`: the IO objects it waits for, and the events for each
    # - `events`: the events that have occurred, or :unblocked
    # - `error`: arguments of `raise` for the waiting fiber, or :cancel
    # - `timer`: the timer that ends it
    # - `parked_at`: the time of the last poll before it began
    # - `late`: deliveries that must not end it, and are queued again when it has ended
    Wait = Struct.new(:fiber, :kind, :outer, :woken, :queued, :done, :masks, :events, :error, :timer, :parked_at, :late) do
      # @return [Boolean] whether an unblock ends it
      def blocks? = kind == :block || kind == :sleep

      # @return [Boolean] whether it has begun and not ended
      def parked? = !parked_at.nil? && !done

      # @return [Boolean] whether only an unblock can end it
      def forever? = blocks? && !queued && timer.nil?

      # @return [Symbol] as in {FiberStatus}. A :turn that is not queued waits until all other fibers have ended; they are
      #   running.
      def state
        return :ready if queued

        kind == :turn ? :running : :waiting
      end

      # @return [Symbol] as in {FiberStatus}
      def hook
        return :io if masks

        blocks? ? kind : :other
      end

      # @return [Array(IO, Integer), Array(nil, 0)] the IO object it waits for, if there is exactly one, and the events
      def target = masks&.size == 1 ? masks.first : [nil, 0]
    end

    # A wait for an IO without a fiber: see {Watching}. Its fiber starts when it is its turn in the ready queue.
    #
    # - `watcher`: the program's object
    # - `given`: the watched object, as passed by the program
    # - `transient`: whether the end of all fibers does not wait for it
    # - `events`: the events that have occurred; 0: the timeout has elapsed
    # - `error`: the reason why it will get no fiber: the IO was closed or reopened
    #
    # The other attributes are those of a {Wait}.
    Watch = Struct.new(:watcher, :given, :masks, :transient, :queued, :done, :events, :error, :timer) do
      def target = masks.first
    end

    # An exception on its way to a fiber, or a request to end (arguments nil). It takes its turn in the ready queue like a {Wait}.
    #
    # - `deferred`: whether it has already let a wake-up go first: it does so only once
    # - `outlasted`: whether it arrived during a close: it must not end the close
    Delivery = Struct.new(:fiber, :arguments, :queued, :done, :deferred, :outlasted, :timer)

    private_constant :Wait, :Watch, :Delivery
  end
end

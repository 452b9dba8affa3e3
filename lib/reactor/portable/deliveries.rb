# frozen_string_literal: true

require_relative "../durations"
require_relative "../hooks_in_forked_child"
require_relative "../vm"

module Reactor
  class PortableScheduler
    # Exceptions that are raised where a fiber waits: those of timeouts, which are raised unless their block ends first, and those of
    # {#fiber_interrupt} and {#cancel}.

    # The methods of IO that close a descriptor, and the hooks in which they wait.
    CLOSING = %w[close close_read close_write reopen].freeze
    HOOKS_OF_CLOSE = %w[block kernel_sleep].freeze
    private_constant :CLOSING, :HOOKS_OF_CLOSE

    # The hook for Timeout.timeout: runs the block, and raises where it waits when the time is over, also inside an
    # Enumerator. It never raises once the block has been left.
    #
    # @param duration [Numeric, nil] seconds; nil: no limit; a negative number is over at once
    # @param exception [Class, Exception]
    # @param message [String, nil] nil: an instance is raised as it is
    # @yieldparam duration [Numeric]
    # @return what the block returns
    # @raise [TypeError] no duration
    def timeout_after(duration, exception, message = nil, &block)
      seconds = Durations.added_seconds(duration)
      return ForkedChildHooks.timeout_after(seconds, exception, message, &block) unless enter
      return yield(duration) unless seconds

      run_interruptible(seconds, message ? [exception, message] : [exception]) { yield(duration) }
    end

    # As {#timeout_after}, but {#interrupt} may raise the exception before the time is over. In a forked child nothing is raised.
    #
    # @param limit [Numeric, nil] seconds; nil: no limit
    # @param exception [Class, Exception]
    # @yieldparam interruption what {#interrupt} takes
    # @return what the block returns
    # @raise [TypeError] no duration
    # @api private
    def interruptible(limit, exception, &block)
      seconds = Durations.added_seconds(limit)
      enter ? run_interruptible(seconds, [exception], &block) : yield(nil)
    end

    # Raises in the block of {#interruptible} where that waits; once, and not after the block.
    #
    # @return [nil]
    # @raise [ThreadError] called by another thread
    # @api private
    def interrupt(interruption)
      enqueue(interruption) if enter && !interruption.done
      nil
    end

    private

    def run_interruptible(seconds, arguments)
      note_owner
      delivery = delivery_to(Fiber.current, arguments)
      strand = @owners[Fiber.current] || Fiber.current
      delivery.around = @limits[strand]
      @limits[strand] = delivery
      timer = @timers.add(seconds, delivery) if seconds
      value = yield(delivery)
      raise(*arguments) if delivery.outlasted && !delivery.done # no wait has followed the close

      value
    ensure
      delivery&.done = true
      @limits[strand] = delivery.around if strand
      @timers.remove(timer) if timer
    end

    # A fiber that the scheduler did not make may be an Enumerator's that is suspended between two values, and that the program
    # drops. So the delivery does not keep it.
    def delivery_to(fiber, arguments)
      delivery = Delivery.new(nil, arguments)
      delivery.outer = @waits[fiber]
      delivery.in_handler = VM.in_trap_handler?
      if @live.key?(fiber)
        delivery.fiber = fiber
      else
        @limited[delivery] = fiber
        delivery.outer_of_owner = @waits[@owners[fiber]]
      end
      delivery
    end

    # If there was a garbage collection since the last time.
    def remove_timeouts_of_collected
      return if @collections == GC.count

      @collections = GC.count
      @timers.delete_if { |entry| entry.is_a?(Delivery) && entry.fiber.nil? && !@limited.key?(entry) }
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

    # Gives an exception to a fiber. It is the first entry of the ready queue.
    def deliver(delivery)
      delivery = outermost(delivery)
      delivery.fiber = receiver(delivery)
      return delivery.done = true unless delivery.fiber

      wait = wait_for(delivery)
      if wait&.queued && wait.blocks? && !delivery.deferred
        # The wake-up may have handed over a lock, so it takes effect first.
        delivery.deferred = true
        @ready.push(delivery)
        @ready.shift
      elsif wait && ((delivery.outlasted = closes_io?(delivery.fiber)) || (delivery.arguments && wait.in_handler && !delivery.in_handler))
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

    # Of a fiber's timeouts that are due at once the outermost is raised first, as in plain Ruby: it exchanges its place with this one.
    def outermost(delivery)
      found = around = delivery
      found = around if around.queued && !around.deferred while (around = around.around)
      place = @ready.index { |entry| entry.equal?(found) }
      @ready[0], @ready[place] = found, delivery if place&.positive?
      @ready.first
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

    # The wait of a trap handler that is inside of the timeout's block, in a fiber that the fiber of the block has resumed. A handler's
    # own timeout is inside of the handler, as is the fiber resumed there.
    def handler_on_behalf_of(delivery)
      return if delivery.in_handler

      @waits.values.select { |wait| (wait.outer || wait.in_handler) && delivery.fiber.equal?(@owners[wait.fiber]) }.first
    end

    # Whether a fiber waits for the other threads that use an IO which it closes. An exception must
    # not end that wait. Up to Ruby 3.4 the VM keeps the threads in a list on the stack of the method that closes, and would go
    # on to use it. In 4.0 the fiber would keep the mutex that they need to leave. The frames of the fiber tell which method waits.
    def closes_io?(fiber)
      return false unless Fiber === fiber

      frames = fiber.backtrace_locations || []
      hook = frames.index { |frame| HOOKS_OF_CLOSE.include?(frame.base_label) }
      caller = frames[hook + 1] if hook
      !caller.nil? && CLOSING.include?(caller.base_label)
    end

    def raise_in(fiber, arguments)
      return fiber.raise(*arguments) if arguments

      @killed[fiber] = true # the kill unwinds it from where it has resumed another fiber
      fiber.kill
    end
  end
end

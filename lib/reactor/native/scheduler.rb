# frozen_string_literal: true

module Reactor
  # The native scheduler, whose hooks are written in Rust. {PortableScheduler} has the same hooks in Ruby, and documents them for
  # both. {Scheduler} inherits from this class if the native library is loaded.
  class NativeScheduler
    # The body of every fiber of a native scheduler: runs the block, and reports how it ended.
    #
    # It is Ruby code, because a block called from C takes 1.3 kB of frames on the machine stack: every parked fiber would keep
    # these frames, and every garbage collection would scan them.
    #
    # `ended`, a function of the extension, is called however the block ends: normally, by an exception, or by something that no
    # rescue sees (Fiber#kill, Thread#kill, throw). No other code can call it, and its name is not looked up again for each fiber.
    #
    # @api private
    module FiberBody
      BODY = Ractor.make_shareable(
        proc do |scheduler, block, arguments|
          arguments ? block.call(*arguments) : block.call
        rescue Exception => error # rubocop:disable Lint/RescueException -- the scheduler decides how to handle it
          nil
        ensure
          raise error if ended(scheduler, error)
        end
      )
    end
    private_constant :FiberBody

    define_fiber_body(FiberBody::BODY)
    private_class_method :define_fiber_body

    # Methods for rarely used paths. They are written in Ruby, and the extension calls them by name. (It also calls
    # `deadlock_message`, `wakeable_from_outside?`, `run_by_cost` and `run_inline`, which every scheduler has.)

    private

    # Gives control to a new fiber on behalf of a blocking one.
    def start_for_blocking(fiber, *arguments)
      make_starter unless @starter.usable?
      @starter.start(fiber, *arguments)
    end

    def make_starter = @starter = VM::Starter.new

    # The next three are for a forked child that still has its parent's scheduler.
    def io_wait_in_forked_child(io, events, timeout) = ForkedChildHooks.io_wait(io, events, timeout)

    def block_in_forked_child(seconds, has_ended) = ForkedChildHooks.block(seconds, &has_ended)

    def timeout_in_forked_child(seconds, exception, message, block) = ForkedChildHooks.timeout_after(seconds, exception, message, &block)

    # Blocks the thread, because the fiber that happens to poll calls this: no other fiber may run meanwhile.
    def report_unborn(error, watcher) = Fiber.blocking { report_error(error, watcher) }

    def hand_on_mutex(blocker) = VM.hand_on_mutex(blocker)

    # Waits until Process.wait may have a result; takes no child. Only the portable scheduler uses the time when the wait began
    # (`since`).
    def await_child(pid, flags, _since)
      (pid.positive? && await_exit(pid)) || ChildEvents.await(pid, flags)
    end
  end

  class << Internal
    # Runs the block in one Ractor at a time. Two Ractors hardly ever get here at once, so the second one polls.
    #
    # @api private
    def exclusively
      sleep 0.001 until lock_patches
      begin
        yield
      ensure
        unlock_patches
      end
    end
  end
end

# frozen_string_literal: true

module Reactor
  # The native scheduler: its hooks are written in Rust. {PortableScheduler} has the same hooks in Ruby, and its documentation of them
  # holds for both. {Scheduler} inherits from this class if the native library is loaded.
  class NativeScheduler
    # The body of every fiber of a native scheduler: it runs the block, and reports how the block ended.
    #
    # It is Ruby code, because a block that C calls takes 1.3 kB of frames on the machine stack. Every parked fiber would keep
    # them, and each garbage collection would scan them.
    #
    # `ended`, a function of the extension, is called however the block ends: by an exception, or by what no rescue sees
    # (Fiber#kill, Thread#kill, throw). No other code can call it, and the VM finds it without looking its name up in each fiber.
    #
    # @api private
    module FiberBody
      BODY = Ractor.make_shareable(
        proc do |scheduler, block, arguments|
          arguments ? block.call(*arguments) : block.call
        rescue Exception => error # rubocop:disable Lint/RescueException -- the scheduler decides what becomes of it
          nil
        ensure
          raise error if ended(scheduler, error)
        end
      )
    end
    private_constant :FiberBody

    define_fiber_body(FiberBody::BODY)
    private_class_method :define_fiber_body

    # The rare paths that are written in Ruby. The extension calls them by these names. (It also calls `deadlock_message`,
    # `wakeable_from_outside?`, `run_by_cost` and `run_inline`, which every scheduler has.)

    private

    # Gives a new fiber control.
    def start_for_blocking(fiber, *arguments)
      make_starter unless @starter.usable?
      @starter.start(fiber, *arguments)
    end

    def make_starter = @starter = VM::Starter.new

    # In a forked child that still has its parent's scheduler.
    def io_wait_in_forked_child(io, events, timeout) = ForkedChildHooks.io_wait(io, events, timeout)

    def block_in_forked_child(seconds, is_over) = ForkedChildHooks.block(seconds, &is_over)

    def timeout_in_forked_child(seconds, exception, message, block) = ForkedChildHooks.timeout_after(seconds, exception, message, &block)

    # In the fiber that happens to poll, in whose stead nothing may run.
    def report_unborn(error, watcher) = Fiber.blocking { report_error(error, watcher) }

    def hand_on_mutex(blocker) = VM.hand_on_mutex(blocker)

    # Waits until Process.wait may have an answer; takes no child. The portable scheduler needs to know since when there was none.
    def await_child(pid, flags, _since)
      (pid.positive? && await_exit(pid)) || ChildEvents.await(pid, flags)
    end
  end

  class << Internal
    # Runs the block while no other Ractor does. Hardly ever two begin at once, so the second one only asks now and then.
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

# frozen_string_literal: true

module Reactor
  class NativeScheduler
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

    def report_error(error) = VM.report_error(Fiber.current, error)

    def hand_on_mutex(blocker) = VM.hand_on_mutex(blocker)

    # Waits until Process.wait may have an answer; takes no child. The portable scheduler needs to know since when there was none.
    def await_child(pid, flags, _since) = ChildEvents.await(pid, flags)
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

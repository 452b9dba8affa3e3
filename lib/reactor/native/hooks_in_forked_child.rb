# frozen_string_literal: true

require_relative "../hooks_in_forked_child"

module Reactor
  class NativeScheduler
    # Methods that the extension calls by these names in a forked child that still has its parent's scheduler.

    private

    def io_wait_in_forked_child(io, events, timeout) = ForkedChildHooks.io_wait(io, events, timeout)

    def block_in_forked_child(seconds, is_over) = ForkedChildHooks.block(seconds, &is_over)

    def timeout_in_forked_child(seconds, exception, message, block) = ForkedChildHooks.timeout_after(seconds, exception, message, &block)
  end
end

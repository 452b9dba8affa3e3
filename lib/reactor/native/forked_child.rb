# frozen_string_literal: true

require_relative "../forked_child"

module Reactor
  # What the extension calls in a forked child, by these names.
  class NativeScheduler
    private

    def io_wait_in_forked_child(io, events, timeout) = ForkedChild.io_wait(io, events, timeout)

    def sleep_in_forked_child(duration) = ForkedChild.sleep(duration)

    def timeout_in_forked_child(seconds, exception, message, block) = ForkedChild.timeout_after(seconds, exception, message, &block)
  end
end

# frozen_string_literal: true

require_relative "../forked_child"

module Reactor
  # What the extension calls in a forked child, by these names.
  class NativeScheduler
    private

    def blocking_wait(io, events, timeout) = ForkedChild.io_wait(io, events, timeout)

    def blocking_sleep(duration) = ForkedChild.sleep(duration)
  end
end

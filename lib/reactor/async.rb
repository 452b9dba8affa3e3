# frozen_string_literal: true

# Runs Async on this library. Not loaded by default:
#
#   require "reactor/async"                                    # and IO_EVENT_SELECTOR=Reactor in the environment, or
#   Async::Scheduler.new(selector: Reactor::AsyncSelector.new(Fiber.current))
#
# Needs the io-event gem.

require_relative "../reactor"

require "io/event"
require_relative "async/selector"

IO::Event::Selector.const_set(:Reactor, Reactor::AsyncSelector) unless IO::Event::Selector.const_defined?(:Reactor, false)

# frozen_string_literal: true

# require "reactor/adapters/curb": requests of curb park their fiber, and libcurl waits on a worker thread.
#
# Handlers such as on_body run on that thread. In programs and fibers without a scheduler nothing changes.

require "curb"
require_relative "offloaded"

# Every request of curb ends up in this method, also those of `Curl::Easy` and `Curl.get`.
Reactor::Adapters.offload(Curl::Multi, :perform)

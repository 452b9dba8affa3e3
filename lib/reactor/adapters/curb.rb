# frozen_string_literal: true

# require "reactor/adapters/curb": requests made by curb park their fiber while libcurl waits on a worker thread.
#
# Handlers such as on_body run on that thread. Nothing changes in programs and fibers without a scheduler.

require "curb"
require_relative "offloaded"

# All requests of curb use this method, including `Curl::Easy` and `Curl.get`.
Reactor::Adapters.offload(Curl::Multi, :perform)

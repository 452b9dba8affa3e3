# frozen_string_literal: true

# require "reactor/adapters/typhoeus": requests made by Typhoeus park their fiber while libcurl waits on a worker thread.
#
# Callbacks such as on_body run on that thread. Nothing changes in programs and fibers without a scheduler.

require "typhoeus"
require_relative "offloaded"

# Covers a single request (Ethon::Easy) and all requests of a Hydra (Ethon::Multi).
Reactor::Adapters.offload(Ethon::Easy, :perform)
Reactor::Adapters.offload(Ethon::Multi, :perform)

# frozen_string_literal: true

# require "reactor/adapters/typhoeus": requests of Typhoeus park their fiber, and libcurl waits on a worker thread.
#
# Callbacks such as on_body run on that thread. In programs and fibers without a scheduler nothing changes.

require "typhoeus"
require_relative "offloaded"

# A single request (Ethon::Easy), and all requests of a Hydra (Ethon::Multi).
Reactor::Adapters.offload(Ethon::Easy, :perform)
Reactor::Adapters.offload(Ethon::Multi, :perform)

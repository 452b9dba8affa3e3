# frozen_string_literal: true

# require "reactor/adapters/typhoeus": requests of Typhoeus park their fiber, and libcurl waits on a worker thread.
#
# Callbacks such as on_body run on that thread. In programs and fibers without a scheduler nothing changes.

require "typhoeus"
require_relative "../../reactor"

module Reactor
  module Adapters
    # A single request (Ethon::Easy), and all requests of a Hydra (Ethon::Multi).
    module EthonPerform
      def perform(...) = Reactor.offload { super }
    end
    Ethon::Easy.prepend(EthonPerform)
    Ethon::Multi.prepend(EthonPerform)
  end
end

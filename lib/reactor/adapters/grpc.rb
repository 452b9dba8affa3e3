# frozen_string_literal: true

# require "reactor/adapters/grpc": calls of a gRPC client park their fiber, and the C library waits on a worker thread.
#
# In programs and fibers without a scheduler nothing changes.

require "grpc"
require_relative "../../reactor"

module Reactor
  module Adapters
    # What a call sends and receives goes through this method.
    module GRPCCall
      def run_batch(...) = Reactor.offload { super }
    end
    GRPC::Core::Call.prepend(GRPCCall)
  end
end

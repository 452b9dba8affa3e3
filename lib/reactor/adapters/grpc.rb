# frozen_string_literal: true

# require "reactor/adapters/grpc": calls of a gRPC client park their fiber while the C library waits on a worker thread.
#
# Nothing changes in programs and fibers without a scheduler.

require "grpc"
require_relative "offloaded"

# Everything a call sends and receives passes through this method.
Reactor::Adapters.offload(GRPC::Core::Call, :run_batch)

# frozen_string_literal: true

# require "reactor/adapters/grpc": calls of a gRPC client park their fiber, and the C library waits on a worker thread.
#
# In programs and fibers without a scheduler nothing changes.

require "grpc"
require_relative "offloaded"

# What a call sends and receives goes through this method.
Reactor::Adapters.offload(GRPC::Core::Call, :run_batch)

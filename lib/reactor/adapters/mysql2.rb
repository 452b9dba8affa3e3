# frozen_string_literal: true

# require "reactor/adapters/mysql2": connections and prepared statements of mysql2 park their fiber, and the C library waits on
# a worker thread. `Mysql2::Client#query` waits by the scheduler as it is.
#
# In programs and fibers without a scheduler nothing changes.

require "mysql2"
require_relative "offloaded"

Reactor::Adapters.offload(Mysql2::Client, :prepare, :connect)
Reactor::Adapters.offload(Mysql2::Statement, :execute)

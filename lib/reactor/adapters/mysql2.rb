# frozen_string_literal: true

# require "reactor/adapters/mysql2": connections and prepared statements of mysql2 park their fiber while the C library waits on a
# worker thread. `Mysql2::Client#query` needs no adapter: it waits through the scheduler.
#
# Nothing changes in programs and fibers without a scheduler.

require "mysql2"
require_relative "offloaded"

Reactor::Adapters.offload(Mysql2::Client, :prepare, :connect)
Reactor::Adapters.offload(Mysql2::Statement, :execute)

# frozen_string_literal: true

# require "reactor/adapters/mysql2": connections and prepared statements of mysql2 park their fiber, and the C library waits on
# a worker thread. `Mysql2::Client#query` waits by the scheduler as it is.
#
# In programs and fibers without a scheduler nothing changes.

require "mysql2"
require_relative "../../reactor"

module Reactor
  module Adapters
    # Asks the server to prepare a statement, and connects.
    module Mysql2Client
      def prepare(...) = Reactor.offload { super }

      private

      def connect(...) = Reactor.offload { super }
    end
    Mysql2::Client.prepend(Mysql2Client)

    # Runs a prepared statement.
    module Mysql2Statement
      def execute(...) = Reactor.offload { super }
    end
    Mysql2::Statement.prepend(Mysql2Statement)
  end
end

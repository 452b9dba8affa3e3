# frozen_string_literal: true

require "socket"
require_relative "servers"

# Real transactions that are cancelled in their middle: for test_real_servers.rb and test_rackup.rb. A process that runs them has
# Reactor loaded, and loads the library that it is asked for.
module Transactions
  Failed = Class.new(StandardError)

  # How a transfer is ended. `middle` has an item when it waits between its two rows; `limit` passes in the middle.
  WAYS = {
    sibling: ->(transfer, middle, _) { Reactor.group { |group| group.async(&transfer); group.async { middle.pop; raise Failed } } },
    limit: ->(transfer, _, limit) { Reactor.group(timeout: limit) { |group| group.async(&transfer) } },
    any: ->(transfer, middle, _) { Reactor.group { |group| group.any([transfer, middle.method(:pop)], &:call) } },
    first: ->(transfer, middle, _) { Reactor.group { |group| group.async(&transfer); group.async { middle.pop }; group.first } },
    transient: ->(transfer, middle, _) { Reactor.group { |group| group.async(transient: true, &transfer); middle.pop } },
    task: ->(transfer, middle, _) { Reactor.group { |group| group.async(&transfer).tap { middle.pop }.cancel } },
    run: ->(transfer, middle, _) { Reactor.run { Fiber.schedule(&transfer); middle.pop; raise Failed } },
    interrupt: ->(transfer, middle, _) { Reactor.run { Fiber.schedule(&transfer); middle.pop; Process.kill(:INT, Process.pid); sleep } },
    deadline: ->(transfer, _, limit) { Reactor.run { Reactor.deadline(limit) { transfer.call } } },
    settle: ->(transfer, _, limit) { Reactor.group { |group| group.settle([1], timeout: limit) { transfer.call } } },
    server: lambda { |transfer, middle, _|
      Reactor.run do
        listener = TCPServer.new("127.0.0.1", 0)
        server = Reactor::Server.new(listener) { |socket| socket.gets; transfer.call }.start
        TCPSocket.open("127.0.0.1", listener.addr[1]) { |client| client.puts; middle.pop; server.stop(0.01) }
      end
    }
  }.freeze

  # The ways that end what is in a shield: those that end the scheduler.
  ENDS = %i[run interrupt].freeze
  WAITS = %i[query sleep].freeze
  CASES = WAYS.keys.product(WAITS, [false, true]).freeze

  # A library with a pool of connections. Each has `transaction`, whose block is given two lambdas: one runs a
  # statement, one returns the value of a query.
  class Client
    # Seconds of a query that is cancelled. Sequel waits for its end before it rolls back, and the server ignores pg's request to
    # cancel a query that it has not begun.
    QUERY = 2

    def transfer(name, wait)
      transaction do |run, _|
        run.call("INSERT INTO transfers VALUES ('#{name}')")
        wait.call(run)
        run.call("INSERT INTO transfers VALUES ('#{name}')")
      end
    end
  end

  class Pg < Client
    REQUIRES = %w[pg].freeze

    def initialize(port, size)
      @idle = Thread::Queue.new(Array.new(size) { PG.connect(host: "127.0.0.1", port: port, user: "tester", dbname: "postgres") })
    end

    def transaction
      connection = @idle.pop
      connection.transaction { yield connection.method(:exec), ->(query) { connection.exec(query).getvalue(0, 0) } }
    ensure
      @idle << connection if connection
    end
  end

  class Sequel < Client
    REQUIRES = %w[sequel pg].freeze

    def initialize(port, size)
      ::Sequel.extension(:fiber_concurrency)
      @database = ::Sequel.connect(adapter: "postgres", host: "127.0.0.1", port: port, user: "tester", database: "postgres", max_connections: size)
    end

    def transaction = @database.transaction { yield @database.method(:run), ->(query) { @database[query].single_value } }
  end

  class ActiveRecord < Client
    REQUIRES = %w[logger active_record pg].freeze

    # As docs/rails.md says.
    module EndsWhatItHasBegun
      def begin_db_transaction = whole_or(:exec_rollback_db_transaction) { super }
      def begin_isolated_db_transaction(...) = whole_or(:exec_rollback_db_transaction) { super }

      private

      def configure_connection = whole_or(:disconnect!) { super }

      def whole_or(undo)
        yield
      rescue Exception
        send(undo)
        raise
      end
    end

    def initialize(port, size)
      ActiveSupport.on_load(:active_record_postgresqladapter) { prepend EndsWhatItHasBegun }
      ActiveSupport::IsolatedExecutionState.isolation_level = :fiber
      ::ActiveRecord::Base.establish_connection(adapter: "postgresql", host: "127.0.0.1", port: port, username: "tester", database: "postgres", pool: size, min_messages: "error")
    end

    def transaction
      ::ActiveRecord::Base.transaction do
        ::ActiveRecord::Base.with_connection { |connection| yield connection.method(:execute), connection.method(:select_value) }
      end
    end
  end

  LIBRARIES = { "pg" => Pg, "sequel" => Sequel, "activerecord" => ActiveRecord }.freeze

  class << self
    # Why a library cannot be used here. Each is tried in a process of its own, because it changes the one that loads it.
    def absence(library)
      missing = ["pg", *LIBRARIES.fetch(library)::REQUIRES].find { |name| !system(RbConfig.ruby, "-W0", "-r", name, "-e", "", err: File::NULL) }
      missing ? "#{missing} cannot be loaded on Ruby #{RUBY_VERSION[/\d+\.\d+/]}" : PostgresServer.absence
    end

    def open(library, port, size)
      kind = LIBRARIES.fetch(library)
      kind::REQUIRES.each { |name| require name }
      ENV["PGOPTIONS"] = "-c client_min_messages=error" # no warning of a ROLLBACK after a BEGIN that was cancelled
      kind.new(port, size)
    end

    # Runs all cases: at once, each on its own thread, but an interrupt comes to the main thread. Before and after that it uses each
    # connection of the pool. Prints what is wrong: connections in a transaction, and answers of other queries.
    def call(library, port)
      cancel_in_begin(open(library, port, 1))
      left = in_transaction(port)
      client = open(library, port, CASES.size)
      use_all(client) # so none is made in a fiber that is cancelled
      interrupts, others = CASES.partition { |way, *| way == :interrupt }
      others.map { |one| Thread.new { cancel(client, *one) } }.each(&:join)
      interrupts.each { |one| cancel(client, *one) }
      left += in_transaction(port)
      puts "in a transaction: #{left}" unless left.empty?
      wrong = use_all(client).reject { |number, answer| answer.to_i == number }
      puts "wrong: #{wrong}" unless wrong.empty?
    end

    private

    # A limit that passed before the middle is tried again, four times as long.
    def cancel(client, way, wait, shielded)
      limit = 0.05
      reached = false
      middle = Thread::Queue.new
      name = [way, wait, shielded].join(" ")
      between = ->(run) { middle << reached = true; pause(wait, run, shielded && !ENDS.include?(way)) }
      transfer = -> { client.transfer(name, between) }
      ended = shielded ? -> { Reactor.shield(&transfer) } : transfer
      until reached
        begin
          WAYS.fetch(way).call(ended, middle, limit)
        rescue Failed, Interrupt, Reactor::DeadlineExceeded
          limit *= 4
        end
      end
    end

    def pause(wait, run, brief)
      seconds = brief ? 0.1 : Client::QUERY
      wait == :query ? run.call("SELECT pg_sleep(#{seconds})") : sleep(*(seconds if brief))
    end

    # The server's process is stopped when BEGIN comes, and goes on later.
    def cancel_in_begin(client)
      pid = Reactor.run { client.transaction { |_, value| value.call("SELECT pg_backend_pid()").to_i } }
      Process.kill(:STOP, pid)
      on = Thread.new { sleep 0.2; Process.kill(:CONT, pid) }
      Reactor.run { Reactor.deadline(0.02) { client.transfer("begin", ->(_) { sleep }) } }
    rescue Reactor::DeadlineExceeded
      on.join
    end

    def in_transaction(port)
      connection = PG.connect(host: "127.0.0.1", port: port, user: "tester", dbname: "postgres")
      connection.exec("SELECT state, query FROM pg_stat_activity WHERE usename = 'tester' AND xact_start IS NOT NULL AND pid <> pg_backend_pid()").values
    ensure
      connection&.close
    end

    # All connections are taken before one is used.
    def use_all(client)
      taken = 0
      all = Thread::Queue.new
      Reactor.group do |group|
        group.map(1..CASES.size) do |number|
          client.transaction do |run, value|
            all.close if (taken += 1) == CASES.size
            all.pop
            run.call("INSERT INTO transfers VALUES ('all')")
            [number, value.call("SELECT #{number}")]
          end
        end
      end
    end
  end
end

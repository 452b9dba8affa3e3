# frozen_string_literal: true

Gems.row "pg", server: :postgres, what: "`PG::Connection#exec_params`",
  open: ->(_) { PG.connect(host: "127.0.0.1", port: port, user: "tester", dbname: "postgres") },
  call: ->(connection, i) { connection.exec_params("SELECT $1::text, '#{Gate::WORD}'", [i]).getvalue(0, 0) },
  close: ->(connection, _) { connection.close }

Gems.row "activerecord", server: :postgres, requires: %w[logger active_record pg], verdict: :setting, what: "`Model.connection.select_value` on PostgreSQL",
  setting: "ActiveSupport::IsolatedExecutionState.isolation_level = :fiber",
  advice: "in Rails `config.active_support.isolation_level = :fiber`",
  set: -> { ActiveSupport::IsolatedExecutionState.isolation_level = :fiber },
  prepare: -> { ActiveRecord::Base.establish_connection(adapter: "postgresql", host: "127.0.0.1", port: port, username: "tester", database: "postgres", pool: 25, checkout_timeout: 60) },
  open: ->(_) { ActiveRecord::Base.connection_pool.with_connection { |connection| connection.select_value("SELECT 1") } },
  call: ->(_, _) { ActiveRecord::Base.connection_pool.with_connection { |connection| connection.select_value("SELECT '#{Gate::WORD}'") } }

Gems.row "sequel", server: :postgres, requires: %w[sequel pg], verdict: :setting, what: "`Dataset#first` on PostgreSQL",
  setting: "Sequel.extension :fiber_concurrency",
  advice: "before `Sequel.connect`",
  set: -> { Sequel.extension(:fiber_concurrency) },
  prepare: -> { @sequel = Sequel.connect(adapter: "postgres", host: "127.0.0.1", port: port, user: "tester", database: "postgres", max_connections: 25, pool_timeout: 60) },
  call: ->(_, _) { @sequel["SELECT '#{Gate::WORD}'"].first }

mysql = ->(_) { Mysql2::Client.new(host: "127.0.0.1", port: port, username: "root", ssl_mode: :disabled) }

Gems.row "mysql2", server: :mariadb, what: "`Mysql2::Client#query` on MariaDB", open: mysql,
  call: ->(client, _) { client.query("SELECT '#{Gate::WORD}'").first },
  close: ->(client, _) { client.close }

Gems.row "mysql2 prepared", server: :mariadb, verdict: :blocks, what: "`Mysql2::Statement#execute` on MariaDB",
  advice: "`Reactor.offload { statement.execute(…) }`, `query`",
  open: ->(i) { instance_exec(i, &mysql).prepare("SELECT ?") },
  call: ->(statement, _) { statement.execute(Gate::WORD).first }

Gems.row "sqlite3", verdict: :setting, what: "an `INSERT` while another connection has the lock",
  setting: "database.busy_handler { sleep 0.01; true }",
  advice: "not `busy_timeout`, which waits with the GVL held (100 ms here)",
  prepare: lambda {
    @holder = SQLite3::Database.new(File.join(directory, "database"))
    @holder.execute("CREATE TABLE IF NOT EXISTS numbers (number)")
  },
  open: lambda { |_|
    SQLite3::Database.new(File.join(directory, "database")).tap do |database|
      next database.busy_timeout = 100 unless mode == :set

      # What the setting does, and in the first call it waits at the gate. Then the other connection gives the lock back.
      database.busy_handler do |count|
        count.zero? ? visit : sleep(0.01)
        @holder.commit if @holder.transaction_active?
        true
      end
    end
  },
  call: lambda { |database, i|
    @holder.execute("BEGIN EXCLUSIVE") if i.zero?
    database.execute("INSERT INTO numbers VALUES (?)", [i])
  }

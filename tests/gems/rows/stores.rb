# frozen_string_literal: true

Gems.row "redis", server: :redis, what: "`Redis#get`",
  open: ->(_) { Redis.new(host: "127.0.0.1", port: port, timeout: 60).tap(&:ping) },
  call: ->(redis, _) { redis.get(Gate::WORD) },
  close: ->(redis, _) { redis.close }

Gems.row "redis-client", server: :redis, what: "`RedisClient#call`",
  open: ->(_) { RedisClient.config(host: "127.0.0.1", port: port, timeout: 60).new_client.tap { |client| client.call("PING") } },
  call: ->(client, _) { client.call("GET", Gate::WORD) },
  close: ->(client, _) { client.close }

Gems.row "connection_pool", server: :redis, requires: %w[connection_pool redis-client], what: "a pool of 20 Redis clients, `ConnectionPool#with`",
  prepare: -> { @pool = ConnectionPool.new(size: 20, timeout: 60) { RedisClient.config(host: "127.0.0.1", port: port, timeout: 60).new_client } },
  call: ->(_, _) { @pool.with { |client| client.call("GET", Gate::WORD) } }

Gems.row "dalli", server: :memcached, what: "`Dalli::Client#get`",
  open: ->(_) { Dalli::Client.new("127.0.0.1:#{port}", socket_timeout: 60, threadsafe: false).tap { |client| client.get("x") } },
  call: ->(client, _) { client.get(Gate::WORD) },
  close: ->(client, _) { client.close }

Gems.row "bunny", server: :rabbitmq, what: "`Bunny::Session#queue_exists?` on RabbitMQ",
  open: ->(_) { Bunny.new(host: "127.0.0.1", port: port, connection_timeout: 60, continuation_timeout: 60_000).start },
  call: ->(session, _) { session.queue_exists?(Gate::WORD) },
  close: ->(session, _) { session.close }

Gems.row "sidekiq", server: :redis, what: "`Job.perform_async`",
  prepare: lambda {
    Sidekiq.configure_client { |config| config.redis = { url: "redis://127.0.0.1:#{port}", size: 20, timeout: 60 } }
    Object.const_set(:ExampleJob, Class.new { include Sidekiq::Job })
  },
  call: ->(_, _) { ExampleJob.perform_async(Gate::WORD) }

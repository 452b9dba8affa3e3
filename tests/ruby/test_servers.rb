# frozen_string_literal: true

require_relative "helper"
require_relative "servers"
require "net/http"
require "openssl"

# Real servers and common client libraries: a hundred operations at once under one scheduler, in plain blocking code.
class TestServers < ReactorTest
  COUNT = 100

  # The reasons why libraries cannot be loaded. Each is tried once, because a failed attempt may have loaded a part.
  MISSING = Hash.new do |known, library|
    known[library] = begin
      require library
      false
    rescue LoadError => error
      "#{library} cannot be loaded on Ruby #{RUBY_VERSION[/\d+\.\d+/]}: #{error.message.lines.first.strip[0, 60]}"
    end
  end

  def need(*libraries, server: nil)
    reason = libraries.filter_map { |library| MISSING[library] }.first || server&.absence
    skip reason if reason
  end

  # Runs the block in `count` fibers at once and returns their values or errors in order. The server that `serving` starts
  # runs in further fibers until they have ended; `serving` returns how to stop it and what to pass to the block.
  def all_at_once(count: COUNT, serving: nil)
    results = Array.new(count)
    run_scheduler do
      stop, *served = serving&.call
      left = count
      count.times do |i|
        Fiber.schedule do
          results[i] = yield(i, *served)
        rescue StandardError => error
          results[i] = error
        ensure
          stop&.call if (left -= 1).zero?
        end
      end
    end
    results
  rescue Hang => error
    raise error, "results at that time: #{results.tally.inspect[0, 2000]}\n#{error.message}"
  end

  # Calls `act` on another thread when `waiting` returns true.
  def meanwhile(waiting, act)
    thread = Thread.new { act.() if eventually { waiting.() } }
    yield
  ensure
    thread.join
  end

  # Kills the server while all fibers wait for it.
  def killed_midway(server, waiting, &)
    killer = Thread.new do
      eventually { waiting.() }
      server.kill
    end
    results = all_at_once(&)
    killer.join
    results
  end

  # --- PostgreSQL ------------------------------------------------------------------------------------------------

  def test_postgresql_with_a_hundred_clients
    need "pg", server: PostgresServer
    PostgresServer.run do |server|
      # Each client waits for a lock, which is released when all clients wait.
      other = PG.connect(**server.options)
      other.exec("SELECT pg_advisory_lock(1)")
      waiting = -> { other.exec("SELECT count(*) FROM pg_locks WHERE NOT granted").getvalue(0, 0) == COUNT.to_s }
      results = meanwhile(waiting, -> { other.exec("SELECT pg_advisory_unlock(1)") }) do
        all_at_once do |i|
          connection = PG.connect(**server.options)
          row = connection.exec_params("SELECT $1::int * 2 AS twice, pg_advisory_lock_shared(1)", [i]).first
          connection.exec("SELECT repeat('x', 300000) AS long").first["long"].size + row["twice"].to_i
        ensure
          connection&.close
        end
      end
      assert_equal Array.new(COUNT) { |i| 300_000 + i * 2 }, results
    ensure
      other&.close
    end
  end

  def test_the_end_of_postgresql_raises_in_every_client
    need "pg", server: PostgresServer
    PostgresServer.run do |server|
      asked = 0
      results = killed_midway(server, -> { asked == COUNT }) do
        connection = PG.connect(**server.options)
        connection.set_notice_processor { nil }
        asked += 1
        connection.exec("SELECT pg_sleep(600)")
      ensure
        connection&.close
      end
      assert_equal [true], results.map { |error| error.is_a?(PG::Error) }.uniq, results.first.inspect
    end
  end

  # --- Redis -----------------------------------------------------------------------------------------------------

  def redis(server, **) = Redis.new(host: "127.0.0.1", port: server.port, timeout: TEST_TIMEOUT, **)

  def test_redis_with_a_hundred_clients
    need "redis", server: RedisServer
    RedisServer.run do |server|
      # Each client waits for an item, which is pushed when all clients wait.
      other = redis(server).tap(&:ping) # connected before descriptors are counted
      waiting = -> { other.info["blocked_clients"] == COUNT.to_s }
      results = meanwhile(waiting, -> { COUNT.times { |i| other.rpush("list #{i}", i) } }) do
        all_at_once do |i|
          redis = redis(server)
          pushed = redis.blpop("list #{i}", timeout: TEST_TIMEOUT)
          missed = redis.blpop("empty list", timeout: 0.01)
          redis.set("key #{i}", "value #{i}" * 1000)
          [pushed.last, missed, redis.get("key #{i}"), redis.pipelined { |pipeline| 10.times { pipeline.incr("counter #{i}") } }.last]
        ensure
          redis&.close
        end
      end
      assert_equal Array.new(COUNT) { |i| [i.to_s, nil, "value #{i}" * 1000, 10] }, results
    ensure
      other&.close
    end
  end

  def test_the_end_of_redis_raises_in_every_client
    need "redis", server: RedisServer
    RedisServer.run do |server|
      asked = 0
      results = killed_midway(server, -> { asked == COUNT && sleep(0.05) }) do
        redis = redis(server, reconnect_attempts: 0)
        redis.ping
        asked += 1
        redis.blpop("nothing", timeout: TEST_TIMEOUT)
      ensure
        redis&.close
      end
      assert_equal [true], results.map { |error| error.is_a?(Redis::BaseConnectionError) }.uniq, results.first.inspect
    end
  end

  # --- nginx and Net::HTTP ---------------------------------------------------------------------------------------

  def http(port, path, tls: nil)
    client = Net::HTTP.new("127.0.0.1", port)
    client.max_retries = 0
    client.ignore_eof = false
    client.open_timeout = client.read_timeout = client.write_timeout = TEST_TIMEOUT * TimeLimit::MAX_EXTENSION
    if tls
      client.use_ssl = true
      client.cert_store = OpenSSL::X509::Store.new.add_cert(tls)
    end
    client.start { |connection| connection.get(path).body }
  end

  def test_net_http_with_nginx
    need server: NginxServer
    NginxServer.run do |server|
      results = all_at_once { http(server.port, "/file") }
      assert_equal [true], results.map { |body| body == server.content }.uniq, results.first.inspect[0, 200]
    end
  end

  # Net::HTTP in a fiber, nginx as proxy, and a server of the same thread behind it.
  def test_nginx_as_proxy_between_client_and_server_of_one_thread
    need server: NginxServer
    ours = track(TCPServer.new("127.0.0.1", 0))
    NginxServer.run(upstream: ours.addr[1]) do |server|
      results = all_at_once(serving: accepting(ours)) { |i| http(server.port, "/upstream/#{i}") }
      assert_equal Array.new(COUNT) { |i| "you asked for /#{i}" }, results
    end
  end

  # Answers after all clients have asked.
  def accepting(server)
    all_asked = gate(COUNT)
    -> { Fiber.schedule { loop { accept(server.accept, all_asked) } }.method(:kill) }
  end

  def accept(client, gate)
    Fiber.schedule do
      path = client.gets.split[1]
      nil until client.gets.chomp.empty?
      gate.call
      body = "you asked for #{path}"
      client.write("HTTP/1.1 200 OK\r\nContent-Length: #{body.size}\r\nConnection: close\r\n\r\n#{body}")
      client.close
    end
  end

  def test_the_end_of_nginx_raises_in_every_client
    need server: NginxServer
    NginxServer.run(rate: 2000) do |server|
      asked = 0
      results = killed_midway(server, -> { asked == COUNT && sleep(0.05) }) { asked += 1; http(server.port, "/file") }
      expected = [EOFError, Errno::ECONNRESET, Errno::ECONNREFUSED, Errno::EPIPE]
      assert_equal [true], results.map { |error| expected.any? { |kind| error.is_a?(kind) } }.uniq, results.map(&:class).tally.inspect
    end
  end

  # --- OpenSSL ---------------------------------------------------------------------------------------------------

  def test_https_with_nginx
    need server: NginxServer
    context = tls_context
    ours = track(TCPServer.new("127.0.0.1", 0))
    NginxServer.run(certificate: context.cert, key: context.key, upstream: ours.addr[1]) do |server|
      results = all_at_once(serving: accepting(ours)) do |i|
        [http(server.tls_port, "/upstream/#{i}", tls: context.cert), http(server.tls_port, "/file", tls: context.cert) == server.content]
      end
      assert_equal Array.new(COUNT) { |i| ["you asked for /#{i}", true] }, results
    end
  end

  def tls_server
    OpenSSL::SSL::SSLServer.new(track(TCPServer.new("127.0.0.1", 0)), tls_context).tap { |server| server.start_immediately = false }
  end

  # Answers each line in capitals after all clients have sent one. Returns the accepting fiber.
  def serve_tls(server, count = COUNT)
    all_asked = gate(count)
    Fiber.schedule do
      loop do
        client = server.accept
        Fiber.schedule do
          client.accept
          while (line = client.gets)
            all_asked.call
            client.write(line.upcase)
          end
          client.close
        rescue OpenSSL::SSL::SSLError, SystemCallError
          client.close
        end
      end
    end
  end

  # The clients are child processes of another TLS implementation.
  def test_a_tls_server_with_openssl_s_client
    skip "openssl is not installed (bin/setup --servers)" unless ENV.fetch("PATH", "").split(":").any? { |path| File.executable?("#{path}/openssl") }
    server = tls_server
    results = all_at_once(count: 20, serving: -> { serve_tls(server, 20).method(:kill) }) do |i|
      IO.popen(["openssl", "s_client", "-quiet", "-no_ign_eof", "-connect", "127.0.0.1:#{server.addr[1]}"], "r+", err: File::NULL) do |child|
        child.puts "hello #{i}"
        child.gets.tap { child.write("Q\n") } # in one write, because the client exits at the first letter
      end
    end
    assert_equal Array.new(20) { |i| "HELLO #{i}\n" }, results
  end

  # --- Rack ------------------------------------------------------------------------------------------------------

  # Answers after `count` clients have asked.
  def rack_app(count)
    all_asked = gate(count)
    Rack::Lint.new(lambda do |env|
      all_asked.call
      body = "#{env["REQUEST_METHOD"]} #{env["PATH_INFO"]} #{env["rack.input"]&.read}"
      [200, { "content-type" => "text/plain", "content-length" => body.bytesize.to_s }, [body]]
    end)
  end

  def post(port, number)
    Net::HTTP.post(URI("http://127.0.0.1:#{port}/#{number}"), "body #{number}", "content-type" => "text/plain").body
  end

  # The accept loop of Puma runs in a fiber of the scheduler, its requests in threads of Puma.
  def test_rack_on_puma
    need "rack", "rack/lint", "puma", "puma/server"
    results = all_at_once(serving: method(:serve_puma)) { |i, port| post(port, i) }
    assert_equal Array.new(COUNT) { |i| "POST /#{i} body #{i}" }, results
  end

  def serve_puma
    log = Puma::LogWriter.new(StringIO.new, StringIO.new)
    server = Puma::Server.new(rack_app(25), Puma::Events.new, log_writer: log, min_threads: 0, max_threads: 25)
    port = server.add_tcp_listener("127.0.0.1", 0).addr[1]
    Fiber.schedule { server.run(false) }
    [server.method(:stop), port]
  end
end

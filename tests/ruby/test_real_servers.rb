# frozen_string_literal: true

require_relative "helper"
require_relative "servers"
require_relative "transactions"
require "net/http"
require "openssl"

# Real servers and common client libraries: a hundred operations at once under one scheduler, in plain blocking code.
class TestRealServers < ReactorTest
  COUNT = 100

  # The reasons why libraries cannot be loaded. Each is tried once, because a failed attempt may have loaded part of it.
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

  # Runs the block in a hundred fibers at once and returns their values or errors in order. The server that `serving` starts
  # runs in further fibers until they have ended; `serving` returns how to stop it and what to pass to the block.
  def all_at_once(serving: nil)
    results = Array.new(COUNT)
    run_scheduler do
      stop, *served = serving&.call
      left = COUNT
      COUNT.times do |i|
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
      results = meanwhile(-> { asked == COUNT }, server.method(:kill)) do
        all_at_once do
          connection = PG.connect(**server.options)
          connection.set_notice_processor { nil }
          asked += 1
          connection.exec("SELECT pg_sleep(600)")
        ensure
          connection&.close
        end
      end
      assert_equal [true], results.map { |error| error.is_a?(PG::Error) }.uniq, results.first.inspect
    end
  end

  # The rows of each case, over another connection.
  Transactions::LIBRARIES.each_key do |library|
    define_method("test_half_a_transaction_of_#{library}_is_never_committed") do
      reason = Transactions.absence(library)
      skip reason if reason
      require "pg"
      PostgresServer.run do |server|
        other = PG.connect(**server.options)
        other.exec("CREATE TABLE transfers (name text)")
        assert_equal "", child_says("require #{"#{__dir__}/transactions".dump}; Transactions.call(*ARGV)", library, server.port, gems: true)
        rows = other.exec("SELECT name, count(*) FROM transfers GROUP BY 1").values.to_h
        whole = Transactions::CASES.select { |way, _, shielded| shielded && !Transactions::ENDS.include?(way) }
        assert_equal({ **whole.to_h { |one| [one.join(" "), "2"] }, "all" => (Transactions::CASES.size * 2).to_s }, rows)
      ensure
        other&.close
      end
    end
  end

  # --- nginx, Net::HTTP and OpenSSL ------------------------------------------------------------------------------

  def https(port, path, certificate)
    client = Net::HTTP.new("127.0.0.1", port)
    client.max_retries = 0
    client.ignore_eof = false
    client.open_timeout = client.read_timeout = client.write_timeout = TEST_TIMEOUT * TimeLimit::MAX_EXTENSION
    client.use_ssl = true
    client.cert_store = OpenSSL::X509::Store.new.add_cert(certificate)
    client.start { |connection| connection.get(path).body }
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

  # Net::HTTP in a fiber, with nginx as server and as proxy, and a server on the same thread behind it.
  def test_https_with_nginx
    need server: NginxServer
    context = tls_context
    ours = track(TCPServer.new("127.0.0.1", 0))
    NginxServer.run(certificate: context.cert, key: context.key, upstream: ours.addr[1]) do |server|
      results = all_at_once(serving: accepting(ours)) do |i|
        [https(server.tls_port, "/upstream/#{i}", context.cert), https(server.tls_port, "/file", context.cert) == server.content]
      end
      assert_equal Array.new(COUNT) { |i| ["you asked for /#{i}", true] }, results
    end
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

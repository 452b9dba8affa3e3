# frozen_string_literal: true

require_relative "helper"
require "net/http"
require "openssl"
require "tmpdir"

# Unchanged Ruby code in many fibers: order, bytes, and concurrency. Servers answer after all clients have asked, so
# requests that run one by one never finish.
class TestRealInput < ReactorTest
  CLIENTS = 10
  PAUSE = 0.01

  def serve_http(server, gate)
    Fiber.schedule do
      loop do
        client = server.accept
        Fiber.schedule { serve_connection(client, gate) }
      end
    rescue IOError, Errno::EBADF
      nil
    end
  end

  def serve_connection(client, gate)
    while (line = client.gets)
      path = line.split[1]
      length = 0
      while (header = client.gets) && header != "\r\n"
        length = header[/\d+/].to_i if header.start_with?("Content-Length")
      end
      body = "#{path}:#{client.read(length)}" * 100
      gate.call
      client.write("HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\n\r\n", body)
    end
  ensure
    client.close
  end

  def test_net_http_against_a_server_on_the_same_scheduler
    server = track(TCPServer.new("127.0.0.1", 0))
    got = {}
    run_scheduler do
      accepting = serve_http(server, gate(CLIENTS))
      clients = Array.new(CLIENTS) do |i|
        Fiber.schedule do
          Net::HTTP.start("127.0.0.1", server.addr[1]) do |http|
            first = http.get("/#{i}")
            second = http.post("/#{i}/again", "body #{i}", "Content-Type" => "text/plain")
            got[i] = [first.body, second.body]
          end
        end
      end
      Fiber.schedule { sleep 0.005 while clients.any?(&:alive?); accepting.kill }
    end
    assert_equal (0...CLIENTS).to_h { |i| [i, ["/#{i}:" * 100, "/#{i}/again:body #{i}" * 100]] }, got
  end

  def test_net_http_read_timeout_is_net_read_timeout
    server = track(TCPServer.new("127.0.0.1", 0))
    in_fiber do
      http = Net::HTTP.new("127.0.0.1", server.addr[1])
      http.read_timeout = 0.01
      http.max_retries = 0
      assert_raises(Net::ReadTimeout) { http.get("/") }
    end
  end

  # CLIENTS conversations of lines; each line is answered after all clients have sent one.
  def converse(listener, line, &connect)
    got = {}
    all_asked = gate(CLIENTS)
    run_scheduler do
      Fiber.schedule do
        CLIENTS.times do
          peer = listener.accept
          Fiber.schedule do
            peer.accept if peer.is_a?(OpenSSL::SSL::SSLSocket)
            while (asked = peer.gets)
              all_asked.call
              peer.puts(asked.chomp.reverse)
            end
            peer.close
          end
        end
      end
      CLIENTS.times do |i|
        Fiber.schedule do
          socket = connect.call
          got[i] = Array.new(3) { |n| socket.puts("#{line} #{i} #{n}"); socket.gets }
          socket.close
        end
      end
    end
    assert_equal (0...CLIENTS).to_h { |i| [i, Array.new(3) { |n| "#{"#{line} #{i} #{n}".reverse}\n" }] }, got
  end

  def test_tcp_conversations
    server = track(TCPServer.new("127.0.0.1", 0))
    converse(server, "line") { TCPSocket.new("127.0.0.1", server.addr[1]) }
  end

  def test_unix_conversations
    Dir.mktmpdir do |dir|
      server = track(UNIXServer.new(path = File.join(dir, "s")))
      converse(server, "line") { UNIXSocket.new(path) }
    end
  end

  def test_openssl_conversations
    context = tls_context
    tcp = track(TCPServer.new("127.0.0.1", 0))
    server = OpenSSL::SSL::SSLServer.new(tcp, context)
    server.start_immediately = false
    trusted = OpenSSL::X509::Store.new.tap { |store| store.add_cert(context.cert) }
    converse(server, "line" * 25_000) do
      client = OpenSSL::SSL::SSLContext.new.tap { |made| made.set_params(verify_mode: OpenSSL::SSL::VERIFY_PEER, cert_store: trusted) }
      OpenSSL::SSL::SSLSocket.new(TCPSocket.new("127.0.0.1", tcp.addr[1]), client).tap do |socket|
        socket.sync_close = true
        socket.hostname = "localhost"
        socket.connect
        socket.post_connection_check("localhost")
      end
    end
  end

  def test_items_pass_through_a_chain_of_pipes
    stages = Array.new(9) { pipe }
    sent = Array.new(20) { |i| "item #{i}" }
    got = []
    # Each stage holds an item when the last one goes on: the last stage the first item, the first stage the eighth.
    all_busy = gate(8)
    run_scheduler do
      Fiber.schedule { sent.each { |item| stages[0][1].puts item }; stages[0][1].close }
      stages.each_cons(2).with_index do |((from, _), (_, to)), i|
        Fiber.schedule do
          from.each_line.with_index { |line, number| all_busy.call if number == 7 - i; to.puts "#{line.chomp}.#{i}" }
          to.close
        end
      end
      Fiber.schedule { stages.last[0].each_line(chomp: true) { |line| got << line } }
    end
    assert_equal sent.map { |item| "#{item}.0.1.2.3.4.5.6.7" }, got
  end

  def test_http_threads_processes_and_queues_concurrently
    server = track(TCPServer.new("127.0.0.1", 0))
    udp = UDPSocket.new.tap { |s| s.bind("127.0.0.1", 0); track(s) }
    a, b = pair
    r, w = pipe
    quiet, = pipe
    go, going = pipe
    queue = Queue.new
    log = []
    all_asked = gate(3) # the HTTP server, the thread, and the fiber that writes
    run_scheduler do
      accepting = serve_http(server, all_asked)
      work = [
        Fiber.schedule { log << [:http, Net::HTTP.get("127.0.0.1", "/x", server.addr[1]).bytesize] },
        Fiber.schedule { log << [:udp, udp.recv(9)] },
        Fiber.schedule { log << [:unix, a.gets] },
        Fiber.schedule { log << [:pipe, r.gets] },
        Fiber.schedule { log << [:queue, queue.pop] },
        Fiber.schedule { log << [:popen, IO.popen(["sh", "-c", "read line; echo child"], in: go, &:read)] },
        Fiber.schedule { log << [:thread, Thread.new { all_asked.call; :joined }.value] },
        Fiber.schedule { log << [:select, IO.select([quiet], nil, nil, PAUSE)] },
        Fiber.schedule { log << [:timeout, (Timeout.timeout(PAUSE) { sleep } rescue :expired)] },
        Fiber.schedule do
          all_asked.call
          b.puts "unix"
          w.puts "pipe"
          going.puts "go"
          queue << :item
          UDPSocket.new.tap { |s| s.send("datagram", 0, "127.0.0.1", udp.addr[1]) }.close
        end
      ]
      Fiber.schedule { sleep 0.005 while work.any?(&:alive?); accepting.kill }
    end
    assert_equal({ http: 300, udp: "datagram", unix: "unix\n", pipe: "pipe\n", queue: :item, popen: "child\n", thread: :joined,
                   select: nil, timeout: :expired }, log.to_h)
  end
end

# frozen_string_literal: true

require_relative "helper"
require "net/http"
ReactorTest.optional "openssl"
require "tmpdir"

# Unchanged Ruby code in many fibers: order, bytes, and concurrency. Servers answer after all clients have asked, so
# requests that run one by one never finish.
class TestRealInput < ReactorTest
  CLIENTS = 10

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
end

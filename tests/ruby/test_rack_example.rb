# frozen_string_literal: true

require_relative "helper"
require "net/http"
require "tempfile"

# examples/rack_server.rb, asked by Net::HTTP, and by clients that break the protocol.
class TestRackExample < ReactorTest
  def serve(config = "", seconds = 30)
    status, words = run_example("examples/rack_server.rb", 0, config, seconds, signal: :TERM) { |line| yield line[/\d+$/].to_i }
    assert_equal 0, status
    words
  end

  # What the server answers to these bytes, until it closes the connection.
  def raw(port, bytes, ends: false)
    socket = TCPSocket.new("127.0.0.1", port)
    socket.write(bytes)
    socket.close_write if ends
    Timeout.timeout(TEST_TIMEOUT) { socket.read }
  ensure
    socket&.close
  end

  HOST = "Host: localhost\r\n"

  def test_net_http_keeps_its_connection
    words = serve do |port|
      Net::HTTP.start("127.0.0.1", port) do |http|
        assert_equal ["hello", "5"], http.get("/").then { |answer| [answer.body, answer["content-length"]] }
        assert_equal "x" * 100_000, http.post("/echo", "x" * 100_000, "content-type" => "text/plain").body
        assert_equal "", http.post("/echo", "", "content-type" => "text/plain").body
        chunked = Net::HTTP::Post.new("/echo", "transfer-encoding" => "chunked", "content-type" => "text/plain").tap { |post| post.body_stream = StringIO.new("y" * 70_000) }
        assert_equal "y" * 70_000, http.request(chunked).body
        assert_equal [nil, "5"], http.head("/").then { |answer| [answer.body, answer["content-length"]] }
        assert_equal %w[404 /a%20b?c=d], http.get("/a%20b?c=d").then { |answer| [answer.code, answer.body] }
        assert_equal %w[500 500], http.get("/error").then { |answer| [answer.code, answer.body] }
        assert_equal "hello", http.get("/").body
      end
      bodies = Array.new(20) { Thread.new { Net::HTTP.get("127.0.0.1", "/", port) } }.map(&:value)
      assert_equal ["hello"] * 20, bodies
    end
    assert_includes words, "an error of the application"
    refute_match(/warning/, words)
  end

  def test_pipelined_requests_are_answered_in_order
    serve do |port|
      bytes = "POST /echo HTTP/1.1\r\n#{HOST}Content-Length: 2\r\n\r\nab" \
              "POST /echo HTTP/1.1\r\n#{HOST}Transfer-Encoding: chunked\r\n\r\n1;x=y\r\nc\r\n2\r\nde\r\n0\r\nTrailer: t\r\n\r\n" \
              "GET / HTTP/1.1\r\n#{HOST}Connection: close\r\n\r\n"
      bodies = raw(port, bytes).scan(/\r\n\r\n(?:\h+\r\n(\w+)\r\n0|(hello))/).map(&:compact).flatten
      assert_equal %w[ab cde hello], bodies
    end
  end

  BAD = {
    "GET /\r\n\r\n" => 400, "GET  / HTTP/1.1\r\n\r\n" => 400, "\x00\xff\xfe\r\n\r\n" => 400, "GET / HTTP/2.0\r\n\r\n" => 505,
    "GET / HTTP/1.1\r\n\r\n" => 400, "GET x HTTP/1.1\r\n#{HOST}\r\n" => 400, "GET / HTTP/1.1\r\n#{HOST}a b: c\r\n\r\n" => 400,
    "GET / HTTP/1.1\r\n#{HOST}#{HOST}\r\n" => 400, "GET / HTTP/1.1\r\n#{HOST} folded\r\n\r\n" => 400,
    "GET /#{"x" * 9000} HTTP/1.1\r\n#{HOST}\r\n" => 414, "GET / HTTP/1.1\r\n#{HOST}a: #{"x" * 9000}\r\n\r\n" => 431,
    "GET / HTTP/1.1\r\n#{HOST}#{"a: #{"x" * 5000}\r\n" * 8}\r\n" => 431,
    "POST / HTTP/1.1\r\n#{HOST}Content-Length: x\r\n\r\n" => 400, "POST / HTTP/1.1\r\n#{HOST}Content-Length: -1\r\n\r\n" => 400,
    "POST / HTTP/1.1\r\n#{HOST}Content-Length: 9999999\r\n\r\n" => 413, "POST / HTTP/1.1\r\n#{HOST}Transfer-Encoding: gzip\r\n\r\n" => 501,
    "POST / HTTP/1.1\r\n#{HOST}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n" => 400,
    "POST / HTTP/1.1\r\n#{HOST}Transfer-Encoding: chunked\r\n\r\nzz\r\n" => 400,
    "POST / HTTP/1.1\r\n#{HOST}Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n" => 400,
    "POST / HTTP/1.1\r\n#{HOST}Transfer-Encoding: chunked\r\n\r\nffffff\r\n" => 413,
    "POST / HTTP/1.1\r\n#{HOST}Expect: more\r\n\r\n" => 417
  }.freeze

  def test_requests_that_break_the_protocol_are_refused
    serve do |port|
      BAD.each do |bytes, status|
        assert_equal "HTTP/1.1 #{status}", raw(port, bytes, ends: true)[/\A\S+ \d+/], bytes[0, 60].inspect
      end
      # The end before the end of a request is no request.
      ["", "GET", "GET / HTTP/1.1\r\n#{HOST}", "POST / HTTP/1.1\r\n#{HOST}Content-Length: 9\r\n\r\nabc"].each do |bytes|
        assert_equal "", raw(port, bytes, ends: true), bytes
      end
      assert_equal "hello", Net::HTTP.get("127.0.0.1", "/", port)
      assert_equal "hello", raw(port, "GET / HTTP/1.0\r\n\r\n")[/\r\n\r\n(.*)/m, 1]
    end
  end

  def test_a_request_that_takes_too_long_is_refused
    serve("", 0.1) do |port|
      ["GET / HT", "GET / HTTP/1.1\r\n#{HOST}", "POST / HTTP/1.1\r\n#{HOST}Content-Length: 9\r\n\r\nabc"].each do |bytes|
        assert_match(%r{\AHTTP/1.1 408 }, raw(port, bytes), bytes)
      end
    end
  end

  # A streaming body of Rack 3 is called with the socket.
  def test_a_streaming_body_is_served_until_it_ends_and_a_signal_cuts_off_one_that_does_not_end
    skip "no rack here" unless system(RbConfig.ruby, "-e", 'require "rack"', err: File::NULL)
    Tempfile.create(["config", ".ru"]) do |file|
      file.write(<<~RUBY)
        ends = ->(stream) { 2.times { |i| stream.write(i); sleep 0.001 } }
        waits = ->(stream) { stream.write("begun"); begin; Thread::Queue.new.pop; ensure; puts "ensured"; end }
        run ->(env) { [200, {}, env["PATH_INFO"] == "/ends" ? ends : waits] }
      RUBY
      file.flush
      words = serve(file.path, 0.1) do |port|
        assert_equal "01", raw(port, "GET /ends HTTP/1.1\r\n#{HOST}\r\n")[/\r\n\r\n(.*)/m, 1]
        refute_includes raw(port, "HEAD /waits HTTP/1.1\r\n#{HOST}\r\n"), "begun"
        @open = TCPSocket.new("127.0.0.1", port)
        @open.write("GET /waits HTTP/1.1\r\n#{HOST}\r\n")
        assert_includes @open.gets("begun"), "begun"
      end
      assert_equal "ensured\n", words
    end
  ensure
    @open&.close
  end
end

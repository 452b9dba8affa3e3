# frozen_string_literal: true

require_relative "helper"
ReactorTest.optional "openssl"
require "logger"
require "net/http"
require "reactor/rack"
require "stringio"
require "tempfile"
begin
  require "rack/lint"
rescue LoadError
  nil # without Rack nobody watches the applications
end

# Reactor::Rack with Net::HTTP, and with clients that violate the protocol or are slow. Rack::Lint checks each application.
class TestRack < ReactorTest
  HOST = "Host: localhost\r\n"
  def self.ok = [200, { "content-type" => "text/plain", "content-length" => "2" }, ["ok"]]
  def ok = self.class.ok

  # Yields the port and the server of an application in this scheduler; returns what was logged.
  def serve(app, lint: true, listener: track(TCPServer.new("127.0.0.1", 0)), **options)
    log = StringIO.new
    run_scheduler do
      rack = Reactor::Rack.new(lint && defined?(::Rack::Lint) ? ::Rack::Lint.new(app) : app, logger: Logger.new(log), **options)
      server = rack.serve(listener)
      Fiber.schedule do
        yield (listener.addr[1] if listener.is_a?(TCPServer)), server
      ensure
        server.stop(0)
      end
    end
    log.string
  end

  # The server's response to these bytes, until it closes the connection.
  def raw(port, *bytes, ends: false)
    socket = TCPSocket.new("127.0.0.1", port)
    bytes.each { |part| socket.write(part) }
    socket.close_write if ends
    got = +""
    Timeout.timeout(TEST_TIMEOUT) { loop { got << socket.readpartial(10_000) } }
  rescue EOFError
    got
  rescue Errno::ECONNRESET
    got << " RESET"
  ensure
    socket&.close
  end

  def get(path = "/", more = "") = "GET #{path} HTTP/1.1\r\n#{HOST}#{more}\r\n"

  # One response on a kept-alive connection.
  def answer(socket)
    head = +""
    head << socket.gets until head.end_with?("\r\n\r\n")
    length = head[/content-length: (\d+)/i, 1].to_i
    [head, length.zero? ? "" : socket.read(length)]
  end

  ECHO = lambda do |env|
    case env["PATH_INFO"]
    when "/echo" then env["rack.input"].read.then { |body| [200, { "content-length" => body.bytesize.to_s }, [body]] }
    when "/error" then raise "an error of the application"
    when "/each" then [200, { "content-type" => "text/plain" }, %w[a b c].each]
    else [200, { "content-type" => "text/plain", "content-length" => "5" }, ["hello"]]
    end
  end

  def test_net_http_keeps_its_connection
    words = serve(ECHO) do |port|
      Net::HTTP.start("127.0.0.1", port) do |http|
        assert_equal %w[hello 5], http.get("/").then { |answer| [answer.body, answer["content-length"]] }
        assert_match(/ GMT\z/, http.get("/")["date"])
        assert_equal "x" * 100_000, http.post("/echo", "x" * 100_000, "content-type" => "text/plain").body
        assert_equal "", http.post("/echo", "", "content-type" => "text/plain").body
        chunked = Net::HTTP::Post.new("/echo", "transfer-encoding" => "chunked", "content-type" => "text/plain")
        chunked.body_stream = StringIO.new("y" * 70_000)
        assert_equal "y" * 70_000, http.request(chunked).body
        assert_equal [nil, "5"], http.head("/").then { |answer| [answer.body, answer["content-length"]] }
        assert_equal %w[abc chunked], http.get("/each").then { |answer| [answer.body, answer["transfer-encoding"]] }
        assert_equal "500", http.get("/error").code
        assert_equal "hello", http.get("/").body
      end
    end
    assert_includes words, "an error of the application"
  end

  def test_the_environment
    env = nil
    serve(->(given) { env = given; ok }) do |port|
      raw(port, "GET http://other:81/a%20b?c=d HTTP/1.1\r\n#{HOST}X-Many: 1\r\nX-Many: 2\r\nCookie: a=b\r\nCookie: c=d\r\nX_Under: no\r\nConnection: close\r\n\r\n")
    end
    expected = { "REQUEST_METHOD" => "GET", "PATH_INFO" => "/a%20b", "QUERY_STRING" => "c=d", "SERVER_NAME" => "other", "SERVER_PORT" => "81",
                 "HTTP_HOST" => "other:81", "HTTP_X_MANY" => "1, 2", "HTTP_COOKIE" => "a=b; c=d", "SERVER_PROTOCOL" => "HTTP/1.1", "SCRIPT_NAME" => "",
                 "REMOTE_ADDR" => "127.0.0.1", "rack.url_scheme" => "http" }
    assert_equal expected, env.slice(*expected.keys)
    refute env.key?("HTTP_X_UNDER"), "X_Under would pass for X-Under"
  end

  def test_pipelined_requests_are_answered_in_order
    bytes = "POST /echo HTTP/1.1\r\n#{HOST}Content-Length: 2\r\n\r\nab" \
            "POST /echo HTTP/1.1\r\n#{HOST}Transfer-Encoding: chunked\r\n\r\n1;x=y\r\nc\r\n2\r\nde\r\n0\r\nTrailer: t\r\n\r\n" \
            "GET / HTTP/1.1\r\n#{HOST}Connection: close\r\n\r\n"
    serve(ECHO) do |port|
      assert_equal %w[ab cde hello], raw(port, bytes).scan(/\r\n\r\n(ab|cde|hello)/).flatten, "at once"
      assert_equal %w[ab cde hello], raw(port, *bytes.chars).scan(/\r\n\r\n(ab|cde|hello)/).flatten, "byte by byte"
    end
  end

  BAD = {
    "GET /\r\n\r\n" => 400, "GET  / HTTP/1.1\r\n\r\n" => 400, "\x00\xff\xfe\r\n\r\n" => 400, "GET / HTTP/2.0\r\n\r\n" => 505,
    "GET / HTTP/1.1\r\n\r\n" => 400, "GET x HTTP/1.1\r\n#{HOST}\r\n" => 400, "GET / HTTP/1.1\r\n#{HOST}a b: c\r\n\r\n" => 400,
    "GET / HTTP/1.1\r\n#{HOST}#{HOST}\r\n" => 400, "GET / HTTP/1.1\r\n#{HOST} folded\r\n\r\n" => 400, "GET / HTTP/1.1\r\n#{HOST}a: b\rc\r\n\r\n" => 400,
    "GET / HTTP/1.1\r\n#{HOST}a: b\0c\r\n\r\n" => 400, "GET / HTTP/1.1\r\n#{HOST}a : b\r\n\r\n" => 400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n" => 400,
    "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n" => 400, "GET /#a HTTP/1.1\r\n#{HOST}\r\n" => 400, "CONNECT a:1 HTTP/1.1\r\n#{HOST}\r\n" => 501,
    "GET / HTTP/1.1\r\n#{HOST}a: #{'x' * 40_000}\r\n\r\n" => 431, "GET / HTTP/1.1\r\n#{HOST}#{"a: b\r\n" * 101}\r\n" => 431,
    "GET /#{'x' * 40_000} HTTP/1.1\r\n#{HOST}\r\n" => 431,
    "POST / HTTP/1.1\r\n#{HOST}Content-Length: x\r\n\r\n" => 400, "POST / HTTP/1.1\r\n#{HOST}Content-Length: -1\r\n\r\n" => 400,
    "POST / HTTP/1.1\r\n#{HOST}Content-Length: +1\r\n\r\na" => 400, "POST / HTTP/1.1\r\n#{HOST}Content-Length: 1, 1\r\n\r\na" => 400,
    "POST / HTTP/1.1\r\n#{HOST}Content-Length: 1\r\nContent-Length: 1\r\n\r\na" => 400,
    "POST / HTTP/1.1\r\n#{HOST}Content-Length: 9999999999\r\n\r\n" => 413, "POST / HTTP/1.1\r\n#{HOST}Transfer-Encoding: gzip\r\n\r\n" => 501,
    "POST / HTTP/1.1\r\n#{HOST}Transfer-Encoding: gzip, chunked\r\n\r\n" => 501, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" => 400,
    "POST / HTTP/1.1\r\n#{HOST}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n" => 400,
    "POST /echo HTTP/1.1\r\n#{HOST}Transfer-Encoding: chunked\r\n\r\nzz\r\n" => 400,
    "POST /echo HTTP/1.1\r\n#{HOST}Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n" => 400,
    "POST /echo HTTP/1.1\r\n#{HOST}Transfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n" => 400,
    "POST /echo HTTP/1.1\r\n#{HOST}Transfer-Encoding: chunked\r\n\r\n-1\r\n" => 400, "POST /echo HTTP/1.1\r\n#{HOST}Transfer-Encoding: chunked\r\n\r\n0x1\r\n" => 400,
    "POST /echo HTTP/1.1\r\n#{HOST}Transfer-Encoding: chunked\r\n\r\nffffffff\r\n" => 413, "POST / HTTP/1.1\r\n#{HOST}Expect: more\r\n\r\n" => 200,
    "POST / HTTP/1.1\r\n#{HOST}Expect: more\r\nContent-Length: 1\r\n\r\n" => 417
  }.freeze

  def test_requests_that_break_the_protocol_are_refused
    asked = []
    serve(->(env) { asked << env["REQUEST_METHOD"]; ECHO.call(env) }) do |port|
      BAD.each do |bytes, status|
        assert_equal "HTTP/1.1 #{status}", raw(port, bytes, ends: true)[/\A\S+ \d+/], bytes[0, 90].inspect
      end
      assert_equal %w[POST], asked.uniq, "no request without a good head"
      # A request that ends early is not a request.
      ["", "GET", "GET / HTTP/1.1\r\n#{HOST}", "POST /echo HTTP/1.1\r\n#{HOST}Content-Length: 9\r\n\r\nabc"].each do |bytes|
        assert_equal "", raw(port, bytes, ends: true), bytes
      end
      assert_equal "hello", Net::HTTP.get("127.0.0.1", "/", port)
      assert_equal "hello", raw(port, "GET / HTTP/1.0\r\n\r\n")[/\r\n\r\n(.*)/m, 1]
      assert_equal 2, raw(port, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.0\r\n\r\n").scan("hello").size
    end
  end

  # Whatever arrives first, the answer is that of the whole head, or a refusal as soon as one is certain.
  def test_a_head_that_arrives_in_parts_is_parsed_as_if_it_had_arrived_at_once
    heads = [*BAD.keys, get, get("/a?b=c", "X-Y: 1\r\nx-y: 2\r\nCookie: a\r\ncookie: b\r\nX_Z: 3\r\nContent-Type: t\r\n"), "\r\n\n#{get}rest", get.delete("\r"),
             "GET https://[::1]:8?a HTTP/1.1\r\nHost: x\r\n\r\n", "OPTIONS * HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHost: [::1]:80\r\nA:\t b c \t\r\nB:\r\n\r\n"]
    random = Random.new(7)
    few = ["\r", "\n", "\r\n", " ", "\t", "\0", ":", "\x7f", "\xe4", "a", "_", "0", "#", "?", "HTTP/1.0", "Host: b\r\n"].map(&:b)
    parse = ->(bytes) { env = {}; [Reactor.const_get(:Internal).parse_request(bytes, env), env] }
    accepted = 0
    2_000.times do
      head = heads.sample(random: random).b
      random.rand(0..3).times { head[random.rand(0..head.size), random.rand(0..2)] = few.sample(random: random) }
      length, env = parse.(head)
      part = random.rand(0..[length.positive? ? length - 1 : head.size, head.size].min)
      assert_includes [0, length], parse.(head[0, part]).first, head[0, part].inspect
      next unless length.positive?

      accepted += 1
      assert_equal [length, env], parse.(head[0, length] + random.bytes(5)), head.inspect
    end
    assert_operator accepted, :>, 200
  end

  # --- limits ------------------------------------------------------------------------------------------------------

  def test_a_request_that_takes_too_long_is_refused
    serve(ECHO, header_timeout: 0.05, body_timeout: 0.05) do |port|
      ["GET / HT", "GET / HTTP/1.1\r\n#{HOST}", "POST /echo HTTP/1.1\r\n#{HOST}Content-Length: 9\r\n\r\nabc",
       "POST /echo HTTP/1.1\r\n#{HOST}Transfer-Encoding: chunked\r\n\r\n9\r\nabc"].each do |bytes|
        assert_match(%r{\AHTTP/1.1 408 }, raw(port, bytes), bytes)
      end
    end
  end

  def test_a_header_that_comes_byte_by_byte_is_refused_when_its_time_limit_elapses
    serve(ECHO, header_timeout: 0.05) do |port|
      socket = TCPSocket.new("127.0.0.1", port)
      sent = +"GET / HTTP/1.1\r\nHost: a\r\n"
      loop do
        socket.write(sent.slice!(0) || "a: b\r\n")
        break if socket.wait_readable(0.002)
      end
      assert_match(%r{\AHTTP/1.1 408 }, socket.gets)
      socket.close
    end
  end

  def test_a_client_that_does_not_read_is_given_up
    ended = Queue.new
    body = Enumerator.new { |out| loop { out << ("x" * 65_536) } }
    assert_gives_up(->(env) { env["rack.response_finished"] << ->(*, error) { ended << error.class }; [200, {}, body] }, ended)
  end

  # The client asks, and reads nothing.
  def assert_gives_up(app, ended, **options)
    serve(app, write_timeout: 0.05, **options) do |port|
      socket = TCPSocket.new("127.0.0.1", port)
      socket.write(get)
      assert_equal IO::TimeoutError, ended.pop
      socket.close
    end
  end

  def test_a_client_that_does_not_read_a_file_is_given_up
    file = track(Tempfile.new)
    file.truncate(50_000_000)
    ended = Queue.new
    body = Class.new { define_method(:to_path) { file.path } && define_method(:each) { |&block| block.call(File.binread(file.path)) } }.new
    app = ->(env) { env["rack.response_finished"] << ->(*, error) { ended << error.class }; [200, { "content-length" => "50000000" }, body] }
    assert_equal "", assert_gives_up(app, ended, lint: false)
  end

  # The socket is writable only when three quarters of its buffer are free: at this pace, after four times the limit.
  def test_a_client_that_reads_slowly_but_steadily_is_served
    skip "the length of the queue is known on Linux only" unless RUBY_PLATFORM.include?("linux")
    Dir.mktmpdir do |folder|
      path = File.join(folder, "s")
      serve(->(_) { [200, {}, Array.new(20) { "x" * 65_536 }] }, listener: track(UNIXServer.new(path)), write_timeout: 0.2) do
        socket = UNIXSocket.new(path)
        socket.write(get("/", "Connection: close\r\n"))
        slowly = Array.new(100) { sleep(0.01) && socket.readpartial(2048).bytesize }.sum
        assert_operator slowly + socket.read.bytesize, :>, 20 * 65_536
        socket.close
      end
    end
  end

  def test_a_connection_has_so_many_requests
    serve(ECHO, requests: 3) do |port|
      answers = raw(port, get * 5)
      assert_equal 3, answers.scan("hello").size
      assert_equal 1, answers.scan("connection: close").size
    end
  end

  def test_connections_beyond_the_limit_wait_for_one_that_is_idle
    go = Queue.new
    serve(->(_) { go.pop; ok }, connections: 1) do |port|
      first, second = Array.new(2) { TCPSocket.new("127.0.0.1", port).tap { |socket| socket.write(get) } }
      go << true
      assert_includes answer(first).first, "200 OK"
      assert eventually { go.num_waiting == 1 } # once it no longer lingers
      assert_equal "", first.read
      go << true
      assert_includes answer(second).first, "200 OK"
      [first, second].each(&:close)
    end
  end

  def test_a_body_beyond_the_limit_is_refused_and_the_application_cannot_read_on
    errors = []
    app = lambda do |env|
      env["rack.input"].read
    rescue StandardError => error
      errors << error.class.name
      raise
    end
    serve(app, body_size: 10) do |port|
      assert_includes raw(port, "POST / HTTP/1.1\r\n#{HOST}Content-Length: 11\r\n\r\n"), "413 Content Too Large"
      assert_includes raw(port, "POST / HTTP/1.1\r\n#{HOST}Transfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n6\r\nabcdef\r\n0\r\n\r\n"), "413"
    end
    assert_equal 1, errors.size
  end

  def test_an_overloaded_server_refuses_some_requests_and_serves_the_others
    log = StringIO.new
    serve(->(_) { ok }, overload: 1e-9, access_log: Logger.new(log)) do |port| # no turn comes so soon
      statuses = []
      assert eventually { Net::HTTP.get_response("127.0.0.1", "/", port).then { |got| statuses |= [[got.code, got["retry-after"]]] }.size == 2 }
      assert_equal [["200", nil], %w[503 1]], statuses.sort
    end
    assert_match(%r{"GET / HTTP/1.1" 503 0 \d+\.\d{4}$}, log.string)
    serve(->(_) { ok }, overload: 3600) { |port| assert_equal ["ok"], Array.new(20) { Net::HTTP.get("127.0.0.1", "/", port) }.uniq }
  end

  def test_after_an_overload_all_requests_are_served_again
    admission = Reactor::Rack.const_get(:Admission).new(1e-9)
    Reactor.run do
      assert eventually { !admission.admit? }
      admission.instance_variable_set(:@target, 3600)
      assert eventually { Array.new(200) { admission.admit? }.all? }
    end
  end

  def test_limits_are_checked
    assert_raises(ArgumentError) { Reactor::Rack.new(ECHO, header_sise: 1) }
    assert_raises(ArgumentError) { Reactor::Rack.new(ECHO, header_size: 0) }
    assert_raises(TypeError) { Reactor::Rack.new(ECHO, header_size: "1") }
    assert_raises(TypeError) { Reactor::Rack.new(nil) }
    assert_match(/on_error/, assert_raises(TypeError) { Reactor::Rack.new(ECHO, on_error: 1) }.message)
    assert_equal "unknown keyword: :stop_timeout (#run takes it)", assert_raises(ArgumentError) { Reactor::Rack.new(ECHO, stop_timeout: 1) }.message
  end

  # --- answers -----------------------------------------------------------------------------------------------------

  def test_bodies_of_all_kinds
    file = Tempfile.create("body").tap { |io| io.write("f" * 100_000) }.tap(&:flush)
    of_file = Struct.new(:to_path) { def each = yield(File.read(to_path)) }
    bodies = {
      "/array" => [200, {}, %w[a b]], "/each" => [200, {}, %w[a b].each], "/empty" => [200, {}, []], "/file" => [200, {}, of_file.new(file.path)],
      "/old" => [200, { "set-cookie" => %w[a=b c=d] }, ["x"]], "/none" => [204, {}, []], "/same" => [304, {}, []],
      "/stream" => [200, {}, ->(stream) { stream.write("s"); stream.close }], "/length" => [200, { "content-length" => "3" }, %w[a bc].each]
    }
    serve(->(env) { bodies.fetch(env["PATH_INFO"]).map(&:dup) }, lint: false) do |port|
      Net::HTTP.start("127.0.0.1", port) do |http|
        { "/array" => %w[ab 2], "/each" => ["ab", nil], "/empty" => ["", "0"], "/file" => ["f" * 100_000, "100000"], "/old" => %w[x 1], "/none" => [nil, nil],
          "/same" => [nil, nil], "/length" => %w[abc 3], "/stream" => ["s", nil], "/each " => ["ab", nil] }.each do |path, expected|
          assert_equal expected, http.get(path.strip).then { |answer| [answer.body, answer["content-length"]] }, path
        end
        assert_equal %w[a=b c=d], http.get("/old").get_fields("set-cookie")
      end
      %w[/each /stream].each { |path| assert_match(/\r\n\r\n(ab|s)\z/, raw(port, "GET #{path} HTTP/1.0\r\n\r\n"), "#{path}, HTTP/1.0") }
      assert_match(/\r\n\r\n\z/, raw(port, "HEAD /each HTTP/1.1\r\n#{HOST}Connection: close\r\n\r\n"))
    end
  ensure
    file.close
    File.unlink(file.path)
  end

  def test_an_answer_that_breaks_off_is_not_whole_for_the_client
    bodies = { "/each" => [200, {}, Enumerator.new { |out| out << "a"; raise "broken off" }], "/short" => [200, { "content-length" => "3" }, ["a"]],
               "/long" => [200, { "content-length" => "1" }, %w[a b].each], "/none" => [200, {}, Enumerator.new { raise "before its first part" }],
               "/stream" => [200, {}, ->(stream) { stream.write("half"); raise "in a stream" }] }
    words = serve(->(env) { bodies.fetch(env["PATH_INFO"]) }, lint: false) do |port|
      (bodies.keys - ["/none"]).each do |path|
        got = raw(port, get(path) * 2)
        assert_equal 1, got.scan("HTTP/1.1 200").size, path unless windows? # a reset overtakes what was sent there
        assert_operator got, :end_with?, " RESET", path
      end
      assert_includes raw(port, get("/none", "Connection: close\r\n")), "500 Internal Server Error"
    end
    ["broken off", "shorter than", "longer than", "before its first part", "in a stream"].each { |word| assert_includes words, word }
  end

  def test_wrong_answers_are_errors_of_the_application
    wrong = [nil, [200], ["x", {}, []], [99, {}, []], [100, {}, []], [1000, {}, []], [200, { "content-length" => "-1x" }, []], [200, { "a\r\nb" => "c" }, []], [200, { "a" => "b\r\nc: d" }, []],
             [200, {}, 1], [200, { "content-length" => "x" }, []]]
    words = serve(->(env) { wrong[env["PATH_INFO"].delete("/").to_i] }, lint: false) do |port|
      wrong.each_index { |index| assert_match(%r{\AHTTP/1.1 500 }, raw(port, get("/#{index}", "Connection: close\r\n")), wrong[index].inspect) }
    end
    assert_includes words, "invalid header name"
  end

  def test_any_exception_of_a_request_is_its_own
    raised = [Exception.new("x"), SecurityError.new("x"), NoMemoryError.new("x"), SystemExit.new, Class.new(StandardError) { def message = raise("of the message") }.new]
    places = { "/call" => ->(error) { raise error }, "/each" => ->(error) { [200, {}, Enumerator.new { |out| out << "a"; raise error }] },
               "/close" => ->(error) { [200, {}, Struct.new(:error) { def each = yield("a"); def close = raise(error) }.new(error)] } }
    _, words = capture_io do
      serve(->(env) { env["PATH_INFO"] == "/" ? ok : places[env["PATH_INFO"]].call(raised[env["QUERY_STRING"].to_i]) }, lint: false) do |port|
        places.each_key do |path|
          raised.each_index do |index|
            got = raw(port, get("#{path}?#{index}", "Connection: close\r\n"))
            expected = { "/call" => /\AHTTP.1.1 500/, "/each" => / RESET\z/, "/close" => /\r\n0\r\n\r\n\z/ }[path]
            assert_match expected, got, "#{path} #{raised[index].class}"
          end
        end
        assert_equal "ok", Net::HTTP.get("127.0.0.1", "/", port)
      end
    end
    assert_equal 3, words.scan("failed to report").size
  end

  def test_on_error_takes_the_errors_of_the_application_and_of_its_fibers
    taken = []
    app = lambda do |env|
      raise "of a request" if env["PATH_INFO"] == "/call"

      Fiber.schedule { sleep 0; raise "of a fiber" }
      [200, {}, Enumerator.new { |out| out << "a"; raise "of a body" }]
    end
    rack = Reactor::Rack.new(app, logger: Logger.new(words = StringIO.new), on_error: ->(error, env) { taken << [error.message, env&.fetch("PATH_INFO")] })
    Thread.new do
      rack.run(host: "127.0.0.1", port: 0) do |service|
        port = service.url[/\d+\z/].to_i
        Thread.new { %w[/call /body].each { |path| raw(port, get(path, "Connection: close\r\n")) } && service.stop }
      end
    end.join
    assert_equal [["of a body", "/body"], ["of a fiber", nil], ["of a request", "/call"]], taken.sort
    assert_equal "", words.string
  end

  def test_a_request_that_is_cancelled_at_the_end_of_a_stop_is_no_error_of_the_application
    begun = Thread::Queue.new
    seen = nil
    app = lambda do |_|
      begun << true
      sleep
    rescue Exception => seen # rubocop:disable Lint/RescueException
      raise
    end
    words = serve(app) do |port, server|
      TCPSocket.open("127.0.0.1", port) do |client|
        client.write(get)
        begun.pop
        server.stop(0)
      end
    end
    assert_equal [Reactor::Cancelled, :stopped, ""], [seen.class, seen.reason, words]
  end

  # What follows a bad chunk must not become a request, whatever the application does with the error.
  def test_after_a_bad_body_the_connection_ends
    serve(->(env) { (env["rack.input"].read rescue "rescued").then { |body| [200, { "content-length" => body.bytesize.to_s }, [body]] } }) do |port|
      ["3\nabc\r\n0\r\n\r\n", "3;a\nabc\r\n0\r\n\r\n", "zz\r\n0\r\n\r\n", "zz\r\n3\r\nabc\r\n0\r\n\r\n", "0x3\r\n", "3;\rx\r\nabc\r\n0\r\n\r\n",
       "3\r\nabc\r\n0\r\nno trailer\r\n\r\n", "ffffffff\r\n"].each do |chunks|
        got = raw(port, "POST / HTTP/1.1\r\n#{HOST}Transfer-Encoding: chunked\r\n\r\n#{chunks}#{get('/smuggled')}")
        assert_equal [1, true], [got.scan("200 OK").size, got.include?("connection: close")], chunks.inspect
      end
    end
  end

  def test_the_end_of_a_request_is_that_of_its_input_and_of_its_hijack
    kept = nil
    app = lambda do |env|
      input, hijack = env["rack.input"], env["rack.hijack"]
      kept = [-> { input.read(1) }, -> { hijack.call }]
      ok
    end
    serve(app, lint: false) do |port|
      raw(port, "POST / HTTP/1.1\r\n#{HOST}Connection: close\r\nContent-Length: 300000\r\n\r\n#{'x' * 300_000}")
      kept.each { |call| assert_raises(IOError, &call) }
    end
  end

  def test_statuses_without_a_body
    serve(->(env) { [env["PATH_INFO"][1..].to_i, { "content-length" => "4" }, ["body"]] }, lint: false) do |port|
      %w[GET HEAD].each do |method|
        ask = ->(status) { raw(port, "#{method} /#{status} HTTP/1.1\r\n#{HOST}Connection: close\r\n\r\n") }
        refute_match(/content-length|body/, ask[204])
        assert_match(/content-length: 0\r\n(?!.*body)/m, ask[205])
        assert_match(/content-length: 4\r\n(?!.*body)/m, ask[304])
      end
    end
  end

  def test_a_transfer_encoding_of_the_applications_own
    app = lambda do |env|
      [200, { "transfer-encoding" => env["QUERY_STRING"], "content-length" => "3" }, ["1\r\na\r\n0\r\n\r\n"]]
    end
    serve(app, lint: false) do |port|
      got = raw(port, "#{get('/?chunked')}#{get('/?gzip')}#{get}")
      assert_equal [2, 0, 1], [got.scan("1\r\na\r\n0\r\n\r\n").size, got.scan("content-length").size, got.scan("connection: close").size]
    end
  end

  def test_early_hints_and_the_end_of_the_answer
    ended = []
    app = lambda do |env|
      env["rack.early_hints"].call("link" => "</a.css>; rel=preload")
      env["rack.response_finished"] << ->(_, status, _, error) { ended << [:first, status, error] } << ->(*) { ended << :second; raise "in a callback" }
      ok
    end
    words = serve(app, lint: false) do |port|
      assert_match(%r{\AHTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\n}, raw(port, get("/", "Connection: close\r\n")))
    end
    assert_equal [:second, [:first, 200, nil]], ended
    assert_includes words, "in a callback"
  end

  def test_a_client_that_expects_100_sends_its_body_when_it_is_read
    reads = ->(env) { [200, { "content-length" => "3" }, [env["rack.input"].read]] }
    serve(->(env) { env["PATH_INFO"] == "/read" ? reads.call(env) : ok }) do |port|
      head = "HTTP/1.1\r\n#{HOST}Expect: 100-continue\r\nContent-Length: 3\r\n\r\n"
      socket = TCPSocket.new("127.0.0.1", port)
      socket.write("POST /read #{head}")
      assert_equal "HTTP/1.1 100 Continue\r\n", socket.gets
      socket.gets
      socket.write("abc")
      assert_equal "abc", answer(socket).last
      socket.write("POST / #{head}")
      assert_includes answer(socket).first, "200 OK"
      assert_equal "", socket.read, "the client may send the body or not, so the connection is closed"
      socket.close
    end
  end

  def test_a_body_that_is_not_read_does_not_become_a_request
    serve(->(_) { ok }) do |port|
      smuggled = "GET /smuggled HTTP/1.1\r\n#{HOST}\r\n"
      got = raw(port, "POST / HTTP/1.1\r\n#{HOST}Content-Length: #{smuggled.bytesize}\r\n\r\n#{smuggled}#{get('/', "Connection: close\r\n")}")
      assert_equal 2, got.scan("200 OK").size
      long = "x" * 200_000
      assert_equal 1, raw(port, "POST / HTTP/1.1\r\n#{HOST}Content-Length: #{long.bytesize}\r\n\r\n#{long}#{get}").scan("200 OK").size
    end
  end

  def test_the_input_reads_as_an_io_does
    lines = "a\nbc\n\nd#{'e' * 9000}\nf"
    models = [->(io) { io.read }, ->(io) { [io.read(3), io.read(0), io.read(100_000), io.read(1), io.read] }, ->(io) { [io.gets, io.read(2), io.gets, io.gets, io.read, io.gets] },
              ->(io) { io.each.to_a }, ->(io) { b = +"zz"; [io.read(2, b), b.dup, io.read(nil, b), b.dup, io.read(1, b), b] }]
    got = nil
    serve(->(env) { got = models[env["PATH_INFO"].delete("/").to_i].call(env["rack.input"]); ok }, lint: false) do |port|
      models.each_index do |index|
        expected = models[index].call(StringIO.new(lines.b))
        raw(port, "POST /#{index} HTTP/1.1\r\n#{HOST}Connection: close\r\nContent-Length: #{lines.bytesize}\r\n\r\n#{lines}")
        assert_equal expected, got, index
        chunks = lines.scan(/.{1,7}/m).map { |part| "#{part.bytesize.to_s(16)}\r\n#{part}\r\n" }.join
        raw(port, "POST /#{index} HTTP/1.1\r\n#{HOST}Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n#{chunks}0\r\n\r\n")
        assert_equal expected, got, "#{index}, chunked"
      end
    end
  end

  def test_an_upgrade_by_a_streaming_body
    wishes = nil
    echo = ->(stream) { stream.write(stream.readpartial(10).upcase); stream.close }
    app = lambda do |env|
      wishes = env["rack.protocol"]
      [101, { "rack.protocol" => "echo" }, echo]
    end
    serve(app, lint: false) do |port|
      got = raw(port, get("/", "Connection: Upgrade\r\nUpgrade: echo, other\r\n"), "hello")
      assert_match(/\AHTTP\/1.1 101 Switching Protocols\r\nupgrade: echo\r\nconnection: upgrade\r\ndate: [^\r]+\r\n\r\nHELLO\z/, got)
    end
    assert_equal %w[echo other], wishes
  end

  def test_an_upgrade_that_was_not_asked_for_or_whose_body_was_not_read_is_refused
    app = ->(_) { [101, { "rack.protocol" => "echo" }, ->(stream) { stream.write("upgraded"); stream.close }] }
    upgrade = "Connection: Upgrade\r\nUpgrade: echo\r\n"
    serve(app, lint: false) do |port|
      ["GET / HTTP/1.1\r\n#{HOST}Connection: close\r\n\r\n", "GET / HTTP/1.0\r\n#{upgrade}\r\n",
       "POST / HTTP/1.1\r\n#{HOST}#{upgrade}Content-Length: 100000\r\n\r\nabc"].each { |bytes| assert_match(/\AHTTP.1.1 500 /, raw(port, bytes, ends: true), bytes) }
      assert_match(/\r\n\r\nupgraded\z/, raw(port, "POST / HTTP/1.1\r\n#{HOST}#{upgrade}Content-Length: 3\r\n\r\nabc"))
    end
  end

  # Comes from a backend that breaks off, for example: the client has not gone.
  def test_an_error_of_the_application_is_none_of_the_client
    [EOFError, Errno::EPIPE, Errno::ECONNRESET, IO::TimeoutError].each do |error|
      words = serve(->(_) { [200, {}, ->(stream) { stream.write("part"); raise error, "of a backend" }] }, lint: false) do |port|
        assert_operator raw(port, get), :end_with?, windows? ? " RESET" : "part RESET", error.name
      end
      assert_includes words, "of a backend"
    end
    gone = Queue.new
    words = serve(->(_) { [200, {}, ->(stream) { begin loop { stream.write("x" * 10_000) } ensure gone << true end }] }, lint: false) do |port|
      TCPSocket.new("127.0.0.1", port).then { |socket| socket.write(get) && socket.close }
      gone.pop
    end
    assert_equal "", words, "a client that has gone is no error"
  end

  # A response that was in progress when the shutdown began.
  def test_the_end_is_announced_by_each_answer_or_the_connection_rests_for_the_grace
    entered, go = Queue.new, Queue.new
    app = lambda do |env|
      entered << true
      go.pop if env["PATH_INFO"] == "/head"
      [200, { "content-length" => "2" }, Enumerator.new { |out| out << "o"; env["PATH_INFO"] == "/body" && go.pop; out << "k" }]
    end
    serve(app, lint: false) do |port, server|
      %w[/head /body].each do |path|
        socket = TCPSocket.new("127.0.0.1", port)
        socket.write(get(path))
        entered.pop
        socket.gets if path == "/body" # its head is written
        Fiber.schedule { server.stop(TEST_TIMEOUT) } if path == "/body"
        (@sockets ||= []) << socket
      end
      assert eventually { server.stopping? }
      2.times { go << true }
      first, second = @sockets
      assert_match(/connection: close\r\n\r\nok\z/, first.read)
      second.gets("ok")
      second.write(get)
      assert_match(/\AHTTP.1.1 200 OK.*connection: close\r\n\r\nok\z/m, second.read)
      @sockets.each(&:close)
    end
  end

  def test_a_hijacked_connection_is_the_applications
    taken = Queue.new
    app = lambda do |env|
      next [200, { "rack.hijack" => ->(io) { taken << io } }, []] if env["PATH_INFO"] == "/partial"

      taken << env["rack.hijack"].call
      [-1, {}, []]
    end
    [nil, tls_context].product(%w[/full /partial]) do |tls, path|
      serve(app, lint: false, tls: tls) do |port, server|
        socket = TCPSocket.new("127.0.0.1", port)
        client = tls ? OpenSSL::SSL::SSLSocket.new(socket).tap { |ssl| ssl.sync_close = true; ssl.connect } : socket
        client.write("#{get(path)}read ahead")
        io = taken.pop
        assert_equal "read ahead", io.readpartial(100)
        assert eventually { server.connections.zero? }
        io.write("raw\n")
        io.close
        assert_match(path == "/full" ? /\Araw\n\z/ : %r{\AHTTP/1.1 200 OK\r\n.*\r\n\r\nraw\n\z}m, client.read)
        client.close
      end
    end
  end

  # The kernel resets a connection that is closed before its client's bytes have been read.
  def test_an_end_that_the_client_does_not_expect_cuts_no_response
    large = "x" * 2_000_000
    app = lambda do |env|
      next [200, { "connection" => "close", "content-length" => large.bytesize.to_s }, [large]] if env["PATH_INFO"] == "/close"

      [200, {}, ->(stream) { stream.write(large); stream.close }]
    end
    [nil, tls_context].each do |tls|
      serve(app, tls: tls) do |port|
        %w[/close /call].each do |path|
          socket = TCPSocket.new("127.0.0.1", port)
          client = tls ? OpenSSL::SSL::SSLSocket.new(socket).tap(&:connect) : socket
          client.write(get(path))
          answer = client.readpartial(10)
          client.write(get(path)) # as it cannot know yet that the connection ends
          answer << client.read
          assert_operator answer.bytesize, :>, large.bytesize, [path, tls]
          socket.close
        end
      end
    end
  end

  def test_either_half_of_a_stream_can_be_closed
    app = lambda do |_|
      [200, {}, lambda { |stream|
        stream << "half" << 1
        stream.close_write
        said = stream.read(3)
        stream.close_read
        @heard << said
      }]
    end
    [nil, tls_context].each do |tls|
      @heard = Queue.new
      words = serve(app, tls: tls) do |port|
        socket = TCPSocket.new("127.0.0.1", port)
        client = tls ? OpenSSL::SSL::SSLSocket.new(socket).tap(&:connect) : socket
        client.write(get)
        assert_match(/\r\n\r\nhalf1\z/, client.read)
        client.write("and")
        assert_equal "and", @heard.pop
        socket.close
      end
      assert_equal "", words
    end
  end

  def test_a_stream_gives_up_a_client_that_does_not_read
    ended = Queue.new
    body = lambda do |stream|
      loop { stream.write("x" * 65_536) }
    rescue IO::TimeoutError => error
      ended << error.class
    end
    assert_gives_up(->(_) { [200, {}, body] }, ended)
  end

  def test_a_body_is_closed_before_the_rest_of_its_request_is_awaited
    closed = Queue.new
    body = Class.new do
      define_method(:each) { |&block| block.call("no") }
      define_method(:close) { closed << true }
    end
    serve(->(_) { [401, {}, body.new] }) do |port|
      socket = TCPSocket.new("127.0.0.1", port)
      socket.write("POST / HTTP/1.1\r\n#{HOST}Content-Length: 60000\r\n\r\n1234")
      assert closed.pop
      assert_match(%r{\AHTTP/1.1 401 }, socket.gets)
      socket.write("5" * 59_996 << get) # the connection is kept
      line = socket.gets
      line = socket.gets until line.nil? || line.start_with?("HTTP/1.1")
      assert_match(%r{\AHTTP/1.1 401 }, line)
      socket.close
    end
  end

  def test_a_body_that_is_an_io_without_a_path
    serve(->(_) { [200, {}, IO.popen(%w[echo hello])] }, lint: false) { |port| assert_equal "hello\n", Net::HTTP.get("127.0.0.1", "/", port) }
  end

  def test_a_client_that_leaves_before_a_provisional_response_is_no_error_of_the_application
    finished = Queue.new
    gone = Queue.new
    app = lambda do |env|
      env["rack.response_finished"] << ->(*, error) { finished << error.class }
      gone.pop
      env["PATH_INFO"] == "/hints" ? loop { env["rack.early_hints"].call("link" => "</a>") || sleep(0) } : env["rack.input"].read
      ok
    end
    words = serve(app, lint: false) do |port|
      ["/expect HTTP/1.1\r\nExpect: 100-continue", "/hints HTTP/1.1"].each do |head|
        socket = TCPSocket.new("127.0.0.1", port)
        socket.write("POST #{head}\r\n#{HOST}Content-Length: 5\r\n\r\n")
        assert eventually { gone.num_waiting == 1 }
        socket.setsockopt(Socket::Option.linger(true, 0)) # its close resets the connection
        socket.close
        gone << true
        assert_includes [Errno::EPIPE, Errno::ECONNRESET], finished.pop
      end
    end
    assert_equal "", words
  end

  # They would be taken for those of the next call on another connection.
  def test_a_tls_client_that_resets_leaves_no_errors_to_others
    left = Queue.new
    app = lambda do |env|
      env["rack.response_finished"] << ->(*, error) { left << [error.class, OpenSSL.errors] }
      [200, { "content-length" => (64 << 20).to_s }, ["x" * (64 << 20)]]
    end
    serve(app, lint: false, tls: tls_context) do |port|
      socket = TCPSocket.new("127.0.0.1", port)
      client = OpenSSL::SSL::SSLSocket.new(socket).tap(&:connect)
      client.write(get)
      client.readpartial(100)
      socket.setsockopt(Socket::Option.linger(true, 0))
      socket.close
      error, errors = left.pop
      assert_includes [Errno::ECONNRESET, Errno::EPIPE, OpenSSL::SSL::SSLError], error
      assert_empty errors
    end
  end

  def test_the_application_learns_that_its_client_has_gone
    heard = Queue.new
    app = lambda do |env|
      client = env["reactor.connection"]
      heard << client.gone?
      next ok if env["PATH_INFO"] == "/"

      told = Queue.new
      client.on_gone { told << client.gone? }
      heard << told.pop
      ok
    end
    [nil, tls_context].each do |tls|
      next if tls && !RUBY_PLATFORM.include?("linux") # a TLS client says goodbye

      serve(app, tls: tls) do |port|
        2.times do
          socket = TCPSocket.new("127.0.0.1", port)
          client = tls ? OpenSSL::SSL::SSLSocket.new(socket).tap { |ssl| ssl.sync_close = true; ssl.connect } : socket
          client.write(get)
          assert_includes answer(client).first, "200 OK"
          client.write(get("/wait"))
          assert_equal [false, false], Array.new(2) { heard.pop }
          client.close
          assert_equal true, heard.pop
        end
      end
    end
    serve(app) do |port|
      socket = TCPSocket.new("127.0.0.1", port)
      socket.write(get)
      answer(socket)
      assert_equal false, heard.pop
      connection = Reactor::Rack.const_get(:Connection).allocate
      assert_raises(ArgumentError) { connection.on_gone }
      assert_raises(ThreadError) { run_plain { connection.on_gone { flunk } } }
      socket.close
    end
  end

  # Request => status, whether the connection is kept, the response's body.
  DETAILS = {
    "GET http://a/ HTTP/1.1\r\n\r\n" => [400, false], # RFC 9112, 3.2
    "GET / HTTP/1.2\r\n#{HOST}\r\n" => [200, true], # RFC 9110, 2.5
    "GET / HTTP/2.0\r\n#{HOST}\r\n" => [505, false],
    "GET / HTTP/1.1\r\n#{HOST}Connection: x-close\r\n\r\n" => [200, true],
    "GET / HTTP/1.1\r\n#{HOST}Connection: x, Close\r\n\r\n" => [200, false],
    "GET / HTTP/1.0\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n" => [200, false], # RFC 9112, 9.3
    "POST /echo HTTP/1.1\r\n#{HOST}Content-Length: 0000000000000000002\r\n\r\nhi" => [200, true, "hi"],
    "POST /echo HTTP/1.1\r\n#{HOST}Transfer-Encoding: chunked\r\n\r\n000000002\r\nhi\r\n0\r\n\r\n" => [200, true, "hi"], # RFC 9112, 7.1
    "POST /echo HTTP/1.1\r\n#{HOST}Transfer-Encoding: chunked\r\n\r\n2;#{'e' * 3000}\r\nhi\r\n0\r\n\r\n" => [200, true, "hi"],
    "POST /echo HTTP/1.1\r\n#{HOST}Transfer-Encoding: chunked\r\n\r\n#{"1;#{'e' * 3000}\r\nx\r\n" * 11}0\r\n\r\n" => [413, false],
    "POST /echo HTTP/1.1\r\n#{HOST}Transfer-Encoding: chunked\r\n\r\n0\r\nX: \x01\r\n\r\n" => [400, false],
    "GET /array HTTP/1.1\r\n#{HOST}\r\n" => [200, false],
    "GET /latin1 HTTP/1.1\r\n#{HOST}\r\n" => [200, true],
    "GET /control HTTP/1.1\r\n#{HOST}\r\n" => [500, true, "Internal Server Error\n"]
  }.freeze
  HEADERS = { "/array" => { "connection" => ["close"] }, "/latin1" => { "x-name" => "caf\xE9" }, "/control" => { "x-name" => "a\x01" } }.freeze

  def test_details_of_the_protocol
    app = lambda do |env|
      body = env["rack.input"].read
      [200, { "content-length" => body.bytesize.to_s, **HEADERS.fetch(env["PATH_INFO"], {}) }, [body]]
    end
    serve(app, lint: false, on_error: ->(*) {}) do |port|
      DETAILS.each do |request, (status, is_kept, body)|
        socket = TCPSocket.new("127.0.0.1", port)
        socket.write(request)
        head, got = answer(socket)
        assert_equal [status, body.to_s], [head[/ (\d+) /, 1].to_i, got], request
        socket.write(get("/array")) if is_kept
        assert_equal is_kept, !socket.read.empty?, request
        socket.close
      end
      socket = TCPSocket.new("127.0.0.1", port)
      socket.write("POST / HTTP/1.1\r\n#{HOST}#{"Expect: 100-continue\r\n" * 2}Content-Length: 2\r\n\r\n")
      assert_equal ["HTTP/1.1 100 Continue\r\n", "\r\n"], Array.new(2) { socket.gets }
      socket.write("hi")
      assert_equal "hi", answer(socket).last
      socket.close
    end
  end

  def test_a_length_that_is_no_integer_is_converted_as_by_io
    app = lambda do |env|
      got = [2.5, "x", -1, nil].map { |length| env["rack.input"].read(length) rescue $!.class }.inspect
      [200, { "content-length" => got.bytesize.to_s }, [got]]
    end
    serve(app, lint: false) do |port|
      assert_includes raw(port, "POST / HTTP/1.1\r\n#{HOST}Content-Length: 4\r\nConnection: close\r\n\r\nabcd"), '["ab", TypeError, ArgumentError, "cd"]'
    end
  end

  # Chunks that have arrived together are read at once, unless one of them is out of the ordinary.
  def test_many_chunks
    chunks = ["1\r\na\r\n", "00A\r\n#{'b' * 10}\r\n", "2;x=y\r\ncc\r\n", "000000001\r\nd\r\n", "2\r\n\r\n\r\n", "1f40\r\n#{'e' * 8000}\r\n"]
    data = ["a", "b" * 10, "cc", "d", "\r\n", "e" * 8000]
    read = nil
    app = lambda do |env|
      input = env["rack.input"]
      body = +""
      read == :gets ? input.each { |line| body << line } : (while (part = input.read(*read)) && !part.empty? do body << part end)
      [200, { "content-length" => body.bytesize.to_s }, [body]]
    end
    random = Random.new(57)
    serve(app) do |port|
      post = "POST / HTTP/1.1\r\n#{HOST}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
      [nil, 1, 7, 4096, 65_536, :gets].each do |way|
        read = way
        order = Array.new(way == 1 ? 6 : 40) { random.rand(chunks.size) }
        wire = "#{post}#{order.map { |at| chunks[at] }.join}0\r\n\r\n"
        at = random.rand(1...wire.bytesize)
        assert_equal order.map { |index| data[index] }.join, raw(port, wire[...at], wire[at..])[/\r\n\r\n(.*)/m, 1], [way, order, at]
      end
      read = nil
      ["1\r\nab\r\n", "0x1\r\na\r\n", "1_0\r\na\r\n", "+1\r\na\r\n", " 1\r\na\r\n", "\r\na\r\n", "1\na\r\n", "1\r\na\n\nX\r\n", "1\rX#{'a'}\r\n", "123456789\r\na\r\n"].each do |bad|
        assert_match(%r{\AHTTP/1.1 400}, raw(port, post + "1\r\nx\r\n" * 9 + bad, ends: true), bad.inspect)
      end
    end
    serve(app, body_size: 100, header_size: 200) do |port|
      post = "POST / HTTP/1.1\r\n#{HOST}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
      { 50 => 200, 65 => 413 }.each do |count, status| # five bytes around each
        assert_match(%r{\AHTTP/1.1 #{status}}, raw(port, "#{post}#{"1\r\nx\r\n" * count}0\r\n\r\n"))
        assert_match(%r{\AHTTP/1.1 #{status}}, raw(port, "#{post}#{"01\r\nx\r\n" * (count - 10)}0\r\n\r\n"))
      end
    end
  end

  # X-Forwarded-For => REMOTE_ADDR, when 127.0.0.1 and 10.0.0.0/8 are trusted.
  FORWARDED = {
    nil => "127.0.0.1", "1.2.3.4" => "1.2.3.4", "6.6.6.6, 1.2.3.4, 10.1.1.1" => "1.2.3.4", "10.2.2.2, 10.1.1.1" => "10.2.2.2", "::1" => "::1",
    "[2001:DB8:0::1]" => "2001:db8::1", "[2001:db8::1]:443" => "2001:db8::1", "1.2.3.4:5678, 10.1.1.1:80" => "1.2.3.4", "::ffff:1.2.3.4" => "1.2.3.4",
    "1.2.3.4, unknown" => "127.0.0.1", "1.2.3.4/8" => "127.0.0.1", "" => "127.0.0.1", "," => "127.0.0.1"
  }.freeze

  def test_trusted_proxies
    app = ->(env) { [200, { "content-type" => "text/plain" }, [env.values_at("REMOTE_ADDR", "rack.url_scheme", "SERVER_PORT", "HTTPS").inspect]] }
    ask = ->(port, headers) { raw(port, get("/", "#{headers}Connection: close\r\n"))[/\[.*\]/] }
    log = StringIO.new
    serve(app, lint: false, trusted_proxies: %w[127.0.0.1 10.0.0.0/8], access_log: Logger.new(log)) do |port|
      FORWARDED.each do |forwarded, address|
        assert_equal [address, "http", "80", nil].inspect, ask.call(port, forwarded ? "X-Forwarded-For: #{forwarded}\r\n" : ""), forwarded
      end
      assert_equal ["127.0.0.1", "https", "443", "on"].inspect, ask.call(port, "X-Forwarded-Proto: HTTPS\r\n")
      assert_equal ["127.0.0.1", "http", "80", nil].inspect, ask.call(port, "X-Forwarded-Proto: https, http\r\n")
    end
    assert_includes log.string, "1.2.3.4 - - ["
    [nil, "10.0.0.0/8"].each do |trusted|
      serve(app, lint: false, trusted_proxies: trusted) do |port|
        assert_equal ["127.0.0.1", "http", "80", nil].inspect, ask.call(port, "X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Proto: https\r\n")
      end
    end
    assert_raises(ArgumentError) { Reactor::Rack.new(app, trusted_proxies: "proxy") }
  end

  # docs/rails.md
  def test_rack_makes_a_chunked_body_readable_again
    begin
      require "rack/rewindable_input"
    rescue LoadError
      skip "no Rack here"
    end
    app = lambda do |env|
      twice = Array.new(2) { env["rack.input"].read.tap { env["rack.input"].rewind } }
      [200, { "content-type" => "text/plain" }, [twice.join("|"), env["CONTENT_LENGTH"].inspect]]
    end
    serve(::Rack::RewindableInput::Middleware.new(app), lint: false) do |port|
      assert_match(/abc\|abcnil\z/, raw(port, "POST / HTTP/1.1\r\n#{HOST}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n"))
    end
  end

  def test_the_access_log
    log = StringIO.new
    logger = Logger.new(log, formatter: ->(*, line) { "#{line}\n" })
    serve(ECHO, access_log: logger, body_size: 9, header_timeout: 0.05) do |port|
      raw(port, get("/a?b", "Connection: close\r\n"), ends: true)
      ["\"x\r\n\r\n", "\r\n \r\n\r\n", "POST /long HTTP/1.1\r\n#{HOST}Content-Length: 10\r\n\r\n", "GET /late HTTP/1.1\r\nHo",
       "POST /echo HTTP/1.1\r\n#{HOST}Transfer-Encoding: chunked\r\n\r\nz\r\n"].each { |bytes| raw(port, bytes) }
    end
    expected = ['"GET /a?b HTTP/1.1" 200 5', '"\\"x" 400 0', '"-" 400 0', '"POST /long HTTP/1.1" 413 0', "#{late = '"GET /late HTTP/1.1"'} 408 0", '"POST /echo HTTP/1.1" 400 0']
    lines = log.string.lines.map { |line| line.match(/\A127.0.0.1 - - \[.+?\] (".*" \d+ \d+) (\d+\.\d{4})\n\z/)&.captures }
    assert_equal expected, lines.map { |line| line&.first }
    assert_operator lines.to_h["#{late} 408 0"].to_f, :>=, 0.05
  end

  # --- other transports, and the end -------------------------------------------------------------------------------

  def test_tls
    context = tls_context
    serve(->(env) { [200, {}, [env["rack.url_scheme"], env["rack.input"].read]] }, tls: context) do |port|
      Net::HTTP.start("127.0.0.1", port, use_ssl: true, verify_mode: OpenSSL::SSL::VERIFY_NONE) do |http|
        3.times { assert_equal "httpsabc", http.post("/", "abc", "content-type" => "a/b").body }
        assert_equal 30_005, http.post("/", "x" * 30_000, "content-type" => "a/b").body.bytesize
      end
      offers = OpenSSL::SSL::SSLContext.new.tap { |client| client.alpn_protocols = %w[h2 http/1.1] }
      client = OpenSSL::SSL::SSLSocket.new(TCPSocket.new("127.0.0.1", port), offers).tap { |tls| tls.sync_close = true }
      assert_equal "http/1.1", client.connect.alpn_protocol
      client.close
      refute_includes outcome { raw(port, get) }.to_s, "hello", "no handshake"
    end
    serve(ECHO, tls: context, header_timeout: 0.05) do |port|
      silent = TCPSocket.new("127.0.0.1", port)
      silent.write("\x16")
      assert_equal "", silent.read, "a handshake that takes too long"
      silent.close
    end
  end

  def test_a_unix_socket
    Dir.mktmpdir do |folder|
      path = File.join(folder, "s")
      serve(->(env) { [200, {}, [env["REMOTE_ADDR"]]] }, listener: track(UNIXServer.new(path))) do
        socket = UNIXSocket.new(path)
        socket.write(get("/", "Connection: close\r\n"))
        assert_match(/\r\n\r\n(9\r\n)?127.0.0.1/, socket.read) # in a chunk, where there is Rack::Lint
        socket.close
      end
    end
  end

  def test_stop_answers_what_has_come
    go = Queue.new
    serve(->(_) { go.pop; ok }) do |port, server|
      sockets = Array.new(3) { TCPSocket.new("127.0.0.1", port) }
      sockets[0].write(get)
      assert eventually { go.num_waiting == 1 }
      sockets[1].write(get) # is accepted, and its request may not have been read
      stopped = Queue.new
      Fiber.schedule { stopped << server.stop(TEST_TIMEOUT) }
      2.times { go << true }
      answers = sockets.map(&:read)
      assert_equal [2, 1], [answers.grep(/200 OK/).size, answers.count("")]
      assert_equal 0, stopped.pop
      sockets.each(&:close)
    end
  end
end

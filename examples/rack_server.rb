# frozen_string_literal: true

# A Rack 3 server on Reactor::Server: HTTP/1.1 with keep-alive, pipelining, chunked and streaming bodies. It shows the idiom under real
# traffic, and is no product.
#   ruby -Ilib examples/rack_server.rb [PORT [CONFIG.ru [SECONDS]]]
# Without a configuration it serves APP. A request has to be there within SECONDS (10). SIGTERM and Ctrl-C end it gracefully; answers
# that take longer than SECONDS then are cut off.
require "reactor"
require "socket"
require "stringio"
require "timeout"

class RackServer
  MAX_LINE, MAX_HEADERS, MAX_BODY = 8_192, 32_768, 1 << 20 # bytes
  TOKEN = /[!#$%&'*+.^_`|~0-9A-Za-z-]+/
  Refused = Class.new(StandardError) # a request that is answered without the application; the message is the status

  def initialize(app, seconds) = (@app, @seconds = app, seconds)

  # One request. Whether the connection is kept.
  def answer(socket)
    socket.timeout = 30 # for a client that does not read
    env = Timeout.timeout(@seconds, Timeout::Error) { request(socket) } or return false
    respond(socket, env, *call(env))
  rescue Refused, Timeout::Error => error
    refuse(socket, error.is_a?(Refused) ? error.message : 408)
  end

  private

  def call(env)
    @app.call(env)
  rescue StandardError => error
    warn(error.full_message) || [500, { "content-type" => "text/plain" }, ["500"]]
  end

  # The environment of the next request; nil if the client has gone before its end.
  def request(socket)
    line = line_of(socket, 414) or return
    line = line_of(socket, 414) or return if line.empty? # after the body of the request before
    method, target, major, minor = line.match(%r{\A(#{TOKEN}) (\S+) HTTP/(\d)\.(\d)\z})&.captures || refuse!(400)
    refuse!(505) unless major == "1"
    path, query = target.sub(%r{\Ahttps?://[^/?]*(?=[/?]|\z)}i, "").split("?", 2)
    path = "/" if path.to_s.empty?
    refuse!(400) unless path.start_with?("/") || (path == "*" && method == "OPTIONS")
    env = { "REQUEST_METHOD" => method, "SCRIPT_NAME" => "", "PATH_INFO" => path, "QUERY_STRING" => query || "", "SERVER_PROTOCOL" => "HTTP/1.#{minor}",
            "rack.url_scheme" => "http", "rack.errors" => $stderr, "REMOTE_ADDR" => socket.remote_address.ip_address }
    headers(socket, env) or return
    refuse!(400) if minor != "0" && !env.key?("HTTP_HOST")
    env["SERVER_NAME"], env["SERVER_PORT"] = env.fetch("HTTP_HOST", "localhost").match(/\A(.*?)(?::(\d+))?\z/).captures.then { |name, port| [name, port || "80"] }
    body = body(socket, env) and env.merge!("rack.input" => StringIO.new(body))
  end

  def headers(socket, env)
    size = 0
    until (line = line_of(socket, 431) or return).empty?
      refuse!(431) if (size += line.bytesize) > MAX_HEADERS
      name, value = line.match(/\A(#{TOKEN}):[ \t]*(.*?)[ \t]*\z/)&.captures || refuse!(400)
      name = name.include?("_") ? "IGNORED" : name.upcase.tr("-", "_") # X_A would pass for X-A
      name = "HTTP_#{name}" unless %w[CONTENT_TYPE CONTENT_LENGTH].include?(name)
      refuse!(400) if env.key?(name) && %w[CONTENT_LENGTH HTTP_HOST HTTP_TRANSFER_ENCODING].include?(name)
      env[name] = [env[name], value].compact.join(name == "HTTP_COOKIE" ? "; " : ", ")
    end
    env
  end

  # The whole body: "" if there is none, nil if it ends too early.
  def body(socket, env)
    length, encoding = env.values_at("CONTENT_LENGTH", "HTTP_TRANSFER_ENCODING")
    refuse!(400) if (length && encoding) || (length && !length.match?(/\A\d+\z/))
    refuse!(501) unless encoding.nil? || encoding.casecmp?("chunked")
    refuse!(413) if length.to_i > MAX_BODY
    expect = env["HTTP_EXPECT"]
    refuse!(417) unless expect.nil? || expect.casecmp?("100-continue")
    socket.write("HTTP/1.1 100 Continue\r\n\r\n") if expect
    encoding ? chunks(socket) : exactly(socket, length.to_i)
  end

  def chunks(socket)
    body = +"".b
    until (size = line_of(socket, 400)&.slice(/\A\h{1,8}(?=\s*(;|\z))/) || refuse!(400)).hex.zero?
      refuse!(413) if body.bytesize + size.hex > MAX_BODY
      body << (exactly(socket, size.hex) or return)
      refuse!(400) unless line_of(socket, 400) == ""
    end
    body if headers(socket, {}) # the trailers
  end

  def exactly(socket, size)
    (size.zero? ? +"" : socket.read(size)).then { |bytes| bytes if bytes&.bytesize == size }
  end

  # A line without its end; nil at the end of the stream.
  def line_of(socket, status)
    line = socket.gets("\n", MAX_LINE)
    line && (line.end_with?("\n") ? line.chomp : (refuse!(status) if line.bytesize >= MAX_LINE))
  end

  def refuse!(status) = raise(Refused, status.to_s)

  def refuse(socket, status)
    socket.write("HTTP/1.1 #{status} \r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
    socket.close_write
    Timeout.timeout(1) { nil while socket.readpartial(MAX_LINE) } # a reset would overtake the answer
  rescue EOFError, Timeout::Error then false
  end

  def respond(socket, env, status, headers, body)
    headers = headers.transform_keys { |name| name.to_s.downcase }
    is_empty = env["REQUEST_METHOD"] == "HEAD" || status < 200 || [204, 304].include?(status)
    is_stream = !body.respond_to?(:each) # it is called with the socket, and its end is that of the connection
    is_chunked = !is_empty && !is_stream && !headers.key?("content-length") && env["SERVER_PROTOCOL"] != "HTTP/1.0"
    headers["transfer-encoding"] = "chunked" if is_chunked
    kept = !is_stream && env["SERVER_PROTOCOL"] != "HTTP/1.0" && !env["HTTP_CONNECTION"].to_s.match?(/\bclose\b/i)
    headers["connection"] = kept ? "keep-alive" : "close"
    head = +"HTTP/1.1 #{status} \r\n"
    headers.each { |name, value| Array(value).each { |one| head << "#{name}: #{one}\r\n" } }
    socket.write(head << "\r\n")
    return body.call(socket) && false if is_stream && !is_empty

    body.each { |part| write(socket, part, is_chunked) } unless is_empty
    socket.write("0\r\n\r\n") if is_chunked
    kept
  ensure
    body.close if body.respond_to?(:close)
  end

  def write(socket, part, chunked) = (socket.write(*(chunked ? ["#{part.bytesize.to_s(16)}\r\n", part, "\r\n"] : part)) unless part.empty?)
end

APP = lambda do |env|
  case env["PATH_INFO"]
  when "/" then [200, { "content-type" => "text/plain", "content-length" => "5" }, ["hello"]]
  when "/echo" then [200, { "content-type" => "application/octet-stream" }, [env["rack.input"].read]]
  when "/error" then raise "an error of the application"
  else [404, { "content-type" => "text/plain" }, [env["PATH_INFO"], "?", env["QUERY_STRING"]]]
  end
end

if $PROGRAM_NAME == __FILE__
  port, config, seconds = ARGV
  app = config.to_s.empty? ? APP : (require "rack"; Array(Rack::Builder.parse_file(config)).first)
  seconds = (seconds || 10).to_f
  rack = RackServer.new(app, seconds)
  Fiber.set_scheduler(Reactor::Scheduler.new)
  listener = TCPServer.new("127.0.0.1", port.to_i)
  listener.setsockopt(:TCP, :NODELAY, true) # its connections inherit it; else the body of a kept one waits for an acknowledgement
  server = Reactor::Server.new(listener, limit: 10_000, idle_timeout: 75) { |socket| rack.answer(socket) }.start
  stop = Thread::Queue.new
  %w[INT TERM].each { |signal| trap(signal) { stop << true } }
  Fiber.schedule { stop.pop; server.stop(seconds); exit } # cancels the fibers that still wait for anything
  $stdout.syswrite("listening on 127.0.0.1:#{listener.addr[1]}\n")
  Fiber.scheduler.run
end

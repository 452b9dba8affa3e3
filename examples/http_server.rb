# frozen_string_literal: true

# An HTTP/1.1 server in ordinary blocking Ruby: an accept loop, and a fiber (or thread, or neither) per connection. It reads a
# request with gets up to the blank line, and sends a 200; then comes the next request, or the end, as the client wishes.
#
#   ruby -Ilib examples/http_server.rb MODE [PORT [BODY_BYTES]]
#
# MODE is blocking, threads, or the name of a reactor backend (epoll, poll, …; native for the best). After a backend,
# "+rest" has connections rest without a fiber (Reactor::Server). PORT 0, the default, takes a free one. The address is printed first; SIGTERM or Ctrl-C end the server, which then prints what
# it used.
require "json"
require "socket"

class HTTPServer
  def initialize(port, body_bytes)
    @listener = TCPServer.new("127.0.0.1", port)
    @listener.listen(4096)
    body = "x" * body_bytes
    @answer = "HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\n\r\n#{body}".b.freeze
  end

  def port = @listener.local_address.ip_port

  # Yields every new connection, forever.
  def each_connection
    loop { yield @listener.accept }
  end

  # Serves the requests on one connection until the client closes it.
  def serve(socket)
    nil while answer(socket)
  rescue Errno::ECONNRESET, Errno::EPIPE
    # The client has left, so there is no one to report to.
  ensure
    socket.close
  end

  # Serves one request. Returns whether to keep the connection.
  def answer(socket)
    request = socket.gets or return false
    close = request.end_with?("HTTP/1.0\r\n")
    while (line = socket.gets) && line != "\r\n"
      close = true if line.casecmp?("connection: close\r\n")
    end
    socket.write(@answer)
    !close
  end

  def run_blocking = each_connection { |socket| serve(socket) }

  def run_threads = each_connection { |socket| Thread.new { serve(socket) } }

  def run_fibers
    Fiber.schedule do
      each_connection { |socket| Fiber.schedule { serve(socket) } }
    end
  end

  def run_resting = Reactor::Server.new(@listener, idle_timeout: 75) { |socket| answer(socket) }.start
end

if $PROGRAM_NAME == __FILE__
  mode, port, body_bytes = ARGV
  server = HTTPServer.new(port.to_i, body_bytes.to_i)
  $stdout.sync = true
  trap("TERM") { raise Interrupt }
  puts "listening on 127.0.0.1:#{server.port}"
  statistics = nil
  used = -> { Process.times.then { |times| times.utime + times.stime } }
  before = used.call
  begin
    case mode
    when "blocking" then server.run_blocking
    when "threads" then server.run_threads
    else
      require "reactor"
      backend, rests = mode.split("+")
      scheduler = Reactor::Scheduler.new(backend: (backend unless backend == "native"))
      Fiber.set_scheduler(scheduler)
      rests ? server.run_resting : server.run_fibers
      scheduler.run
    end
  rescue Interrupt
    statistics = scheduler&.stats
  end
  puts JSON.generate(cpu_seconds: used.call - before, statistics: statistics)
  exit # cancels the fibers
end

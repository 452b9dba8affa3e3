# frozen_string_literal: true

# More than one core: the same little HTTP server, several times, on one port.
#
#   ruby -Ilib examples/cores.rb MODE COUNT [PORT]
#
# MODE is one of
#
#   workers   COUNT processes, each with a listener of its own on the port (SO_REUSEPORT: the kernel spreads the
#             connections) and a scheduler. Uses COUNT cores.
#   ractors   COUNT Ractors, each with the same. Uses COUNT cores in one process; whatever the program needs must be
#             allowed in a Ractor. From Ruby 4.0 on: before, more than one with fibers crashes (docs/performance.md).
#   threads   COUNT threads, each with a scheduler, around one listener. They share one core for what is Ruby, because one
#             thread at a time has Ruby's lock; what they win is that one may compute or block while the rest serve.
#
# PORT 0, the default, takes a free one. The address is printed first; SIGTERM or Ctrl-C end it.
require "reactor"
require "socket"

# Requests on one connection until the client is done with it.
class Serving
  ANSWER = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".b.freeze

  def self.accept(listener)
    loop do
      socket = listener.accept
      Fiber.schedule { new(socket).run }
    end
  end

  def initialize(socket)
    @socket = socket
  end

  def run
    while (request = @socket.gets)
      close = request.end_with?("HTTP/1.0\r\n")
      while (line = @socket.gets) && line != "\r\n"
        close = true if line.casecmp?("connection: close\r\n")
      end
      @socket.write(ANSWER)
      break if close
    end
  rescue Errno::ECONNRESET, Errno::EPIPE
    nil # the client has left
  ensure
    @socket.close
  end
end

# A listener on a port that further listeners may share, opened before it or after it.
def shared_listener(port)
  socket = Socket.new(:INET, :STREAM)
  socket.setsockopt(:SOCKET, :REUSEPORT, true)
  socket.bind(Addrinfo.tcp("127.0.0.1", port))
  socket.listen(4096)
  TCPServer.for_fd(socket.fileno).tap { socket.autoclose = false }
end

# Begins to serve on the current thread, process or Ractor, and goes on for ever.
def serve(listener)
  Fiber.set_scheduler(Reactor::Scheduler.new)
  Fiber.schedule { Serving.accept(listener) }
  Fiber.scheduler.run
end

# The first listener fixes the port. A worker closes its copy before it serves, and the parent when all workers listen: a
# listener from which no server accepts would get its share of the connections all the same.
def reserve(port)
  listener = shared_listener(port)
  yield listener.local_address.ip_port, listener
ensure
  listener&.close
end

# Prints the address once a signal would be heard, and yields after one.
def announce_until_signalled(port)
  reader, writer = IO.pipe
  %w[INT TERM].each { |signal| trap(signal) { writer.write_nonblock(".", exception: false) } }
  puts "http://127.0.0.1:#{port}"
  $stdout.flush
  reader.read(1)
  yield
end

def run_workers(count, port)
  reader, writer = IO.pipe
  children = []
  reserve(port) do |reserved, inherited|
    port = reserved
    children = Array.new(count) do
      fork do
        %w[INT TERM].each { |signal| trap(signal) { exit!(0) } }
        listener = shared_listener(reserved)
        inherited.close
        writer.write(".")
        serve(listener)
      end
    end
    reader.read(count) # all of them listen
  end
  announce_until_signalled(port) { children.each { |pid| Process.kill(:TERM, pid) }.each { |pid| Process.wait(pid) } }
end

def run_ractors(count, port)
  reader, writer = IO.pipe
  reserve(port) do |reserved|
    port = reserved
    count.times do
      Ractor.new(reserved, writer.fileno) do |number, done|
        listener = shared_listener(number)
        IO.for_fd(done, "w", autoclose: false).syswrite(".")
        serve(listener)
      end
    end
    reader.read(count)
  end
  announce_until_signalled(port) { exit!(0) }
end

def run_threads(count, port)
  listener = TCPServer.new("127.0.0.1", port)
  listener.listen(4096)
  count.times { Thread.new { serve(listener) } }
  announce_until_signalled(listener.local_address.ip_port) { exit!(0) }
end

mode, count, port = ARGV
case mode
when "workers" then run_workers(Integer(count), Integer(port || 0))
when "ractors"
  Warning[:experimental] = false
  run_ractors(Integer(count), Integer(port || 0))
when "threads" then run_threads(Integer(count), Integer(port || 0))
else abort "usage: cores.rb workers|ractors|threads COUNT [PORT]"
end

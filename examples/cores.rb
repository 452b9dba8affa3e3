# frozen_string_literal: true

# Uses several cores: runs the same small HTTP server several times on one port.
#
#   ruby -Ilib examples/cores.rb MODE COUNT [PORT]
#
# MODE is one of
#
#   workers   COUNT processes, each with a scheduler and its own listener on the port (SO_REUSEPORT: the kernel
#             distributes the connections). Uses COUNT cores.
#   ractors   COUNT Ractors, likewise. Uses COUNT cores in one process; everything the program needs must be allowed
#             in a Ractor. From Ruby 4.0 on: earlier versions crash with fibers in several Ractors (docs/performance.md).
#   threads   COUNT threads, each with a scheduler, sharing one listener. Their Ruby code shares one core, because only
#             one thread at a time holds Ruby's lock. But while one thread computes or blocks, the others can serve.
#
# PORT 0, the default, takes a free port. The address is printed first. Stop the server by SIGTERM or Ctrl-C.
require "reactor"
require "socket"

# Serves the requests on one connection until the client closes it.
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
    nil # the client has closed the connection
  ensure
    @socket.close
  end
end

# Opens a listener on a port that other listeners may share.
def shared_listener(port)
  socket = Socket.new(:INET, :STREAM)
  socket.setsockopt(:SOCKET, :REUSEPORT, true)
  socket.bind(Addrinfo.tcp("127.0.0.1", port))
  socket.listen(4096)
  TCPServer.for_fd(socket.fileno).tap { socket.autoclose = false }
end

# Serves forever on the current thread, process or Ractor.
def serve(listener)
  Fiber.set_scheduler(Reactor::Scheduler.new)
  Fiber.schedule { Serving.accept(listener) }
  Fiber.scheduler.run
end

# The first listener chooses the port. Workers close their copy before serving, and the parent closes its own when all workers
# listen: a listener that no server accepts from would still get its share of connections.
def reserve(port)
  listener = shared_listener(port)
  yield listener.local_address.ip_port, listener
ensure
  listener&.close
end

# Prints the address once signals are handled, and yields after a signal.
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
    reader.read(count) # wait until all of them listen
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

# frozen_string_literal: true

# The rows of bin/bench guard, each done first a few and then many times: ruby bench/guard/operations.rb ROW….
# No thread takes part, so that the instructions of two runs are the same.

require "socket"
require "timeout"
require_relative "rows"

# How often each operation is done, first and then.
SIZES = [100, 1_100].freeze

# Each starts fibers that do the operation so many times.
OPERATIONS = {
  # The first, because a close is announced to every scheduler that is left.
  "close" => ->(count) { Fiber.schedule { count.times { UNIXSocket.pair.each(&:close) } } },
  "yield" => ->(count) { Fiber.schedule { count.times { sleep 0 } } },
  "schedule" => ->(count) { Fiber.schedule { count.times { Fiber.schedule { nil } } } },
  "timeout" => ->(count) { Fiber.schedule { count.times { Timeout.timeout(60) { sleep 0 } } } },
  "queue" => lambda do |count|
    there, back = Thread::Queue.new, Thread::Queue.new
    Fiber.schedule { count.times { there << 1; back.pop } }
    Fiber.schedule { count.times { there.pop; back << 1 } }
  end,
  "mutex" => lambda do |count|
    mutex = Thread::Mutex.new
    2.times { Fiber.schedule { count.times { mutex.synchronize { sleep 0 } } } }
  end,
  "pipe" => lambda do |count|
    (from, there), (back, to) = IO.pipe, IO.pipe
    Fiber.schedule { count.times { there.syswrite("x"); back.readpartial(10) } }
    Fiber.schedule { count.times { from.readpartial(10); to.syswrite("x") } }
  end,
  "unix" => ->(count) { ping(*UNIXSocket.pair, count) },
  "tcp" => lambda do |count|
    server = TCPServer.new("127.0.0.1", 0)
    ping(TCPSocket.new("127.0.0.1", server.local_address.ip_port), server.accept, count)
  end,
  "null" => lambda do |count|
    null = File.open(File::NULL, "w").tap { |file| file.sync = true }
    Fiber.schedule { count.times { null.write("x") } }
  end,
  "file" => lambda do |count|
    file, bytes = File.open(__FILE__), +""
    Fiber.schedule { count.times { file.pread(100, 0, bytes) } }
  end,
  "select" => lambda do |count|
    from, to = IO.pipe
    to.write("x")
    Fiber.schedule { count.times { IO.select([from], [to], nil, 60) } }
  end
}.freeze

def ping(one, other, count)
  Fiber.schedule { count.times { one.write("x"); one.readpartial(10) } }
  Fiber.schedule { count.times { other.readpartial(10); other.write("x") } }
end

Bench::Rows.run(OPERATIONS, SIZES, ARGV) if $PROGRAM_NAME == __FILE__

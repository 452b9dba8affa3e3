# frozen_string_literal: true

# The rows of bench/curves.rb, each done for few and then for many items: ruby bench/guard/curves.rb ROW….

require "socket"
require "timeout"
require_relative "rows"

# Items of each row, first and then.
ITEMS = [300, 2_400].freeze

# Each makes so many items of one collection, and ends them.
CURVES = {
  "schedule" => ->(count) { count.times { Fiber.schedule { nil } } },
  "fibers" => ->(count) { count.times { Fiber.schedule { sleep 0 } } },
  "sleeps" => ->(count) { count.times { |i| Fiber.schedule { sleep 0.001 * ((i * 7) % 10) } } },
  "timeouts" => ->(count) { count.times { Fiber.schedule { Timeout.timeout(60) { sleep 0 } } } },
  "elapsed" => ->(count) { count.times { Fiber.schedule { Timeout.timeout(0.001) { sleep } rescue nil } } },
  "nested" => ->(count) { (1..count / 100).each { Fiber.schedule { nested(100) } } },
  "raises" => lambda do |count|
    fibers = Array.new(count) { Fiber.schedule { sleep rescue nil } }
    Fiber.schedule { fibers.each { |fiber| fiber.raise(IOError) } }
  end,
  "cancel" => ->(count) { count.times { Fiber.schedule { sleep } }; Fiber.scheduler.cancel },
  "queue" => lambda do |count|
    queue = Thread::Queue.new
    count.times { Fiber.schedule { queue.pop } }
    Fiber.schedule { count.times { queue << 1 } }
  end,
  "mutex" => lambda do |count|
    mutex = Thread::Mutex.new
    count.times { Fiber.schedule { mutex.synchronize { sleep 0 } } }
  end,
  "group" => ->(count) { Fiber.schedule { Reactor.group { |group| count.times { group.async { sleep 0 } } } } },
  "limit" => ->(count) { Fiber.schedule { Reactor.group(limit: 10) { |group| count.times { group.async { sleep 0 } } } } },
  "results" => ->(count) { Fiber.schedule { Reactor.group { |group| group.map(1..count) { sleep 0 } && group.results } } },
  "first" => ->(count) { Fiber.schedule { Reactor.group { |group| count.times { group.async { sleep 0 } }; group.first { |_| false } } } },
  "cancelled" => ->(count) { Fiber.schedule { Reactor.group { |group| count.times { group.async { sleep } }; group.cancel } } },
  "errors" => lambda do |count|
    Fiber.schedule do
      Reactor.group { |group| count.times { group.async { begin; sleep; ensure; raise IOError; end } }; group.cancel }
    rescue IOError
      nil
    end
  end,
  "watchers" => lambda do |count|
    count.times.each_slice(100) { |slice| on_ready(slice.size) { |_, to| to.write("x") } }
  end,
  "watched" => ->(count) { on_ready(count) { |_, to| to.write("x") } },
  "transient" => lambda do |count|
    on_ready(count, transient: true) { |_, to| count.times { Fiber.schedule { sleep 0 } }; Fiber.schedule { sleep 0.001; to.write("x") } }
  end,
  "unwatched" => ->(count) { on_ready(count) { |watchers, _| watchers.each(&:cancel) } },
  "closed" => ->(count) { on_ready(count) { |watchers, _| watchers.first.io.close } },
  "reopened" => ->(count) { on_ready(count) { |watchers, _| watchers.first.io.reopen(File::NULL) } },
  "readers" => ->(count) { readers(count) { |_, to| to.write("x" * count) } },
  "shut" => ->(count) { readers(count) { |from, _| from.close } },
  "selects" => lambda do |count|
    from, to = IO.pipe
    count.times { Fiber.schedule { IO.select([from]) } }
    to.write("x")
  end,
  "ios" => lambda do |count|
    from, to = IO.pipe
    copies = Array.new(count) { from.dup }
    Fiber.schedule { IO.select(copies) && copies.each(&:close) }
    to.write("x")
  end,
  "server" => lambda do |count|
    listener = TCPServer.new("127.0.0.1", 0)
    server = Reactor::Server.new(listener) { nil }.start
    Fiber.schedule do
      clients = Array.new(count) { TCPSocket.new("127.0.0.1", listener.local_address.ip_port).tap { sleep 0 } }
      sleep 0.001 until server.inspect.include?("#{count} connections")
      server.stop
      clients.each(&:close)
    end
  end,
  "schedulers" => ->(count) { Array.new(count / 3) { Reactor::Scheduler.new }.each(&:close) },
  "offload" => ->(count) { count.times { Fiber.schedule { Reactor.offload { nil } } } }
}.freeze

def nested(levels) = levels.zero? ? sleep(0) : Timeout.timeout(60) { nested(levels - 1) }

def on_ready(count, **options)
  from, to = IO.pipe
  scheduler = Fiber.scheduler
  watchers = Array.new(count) { scheduler.on_ready(from, **options) { nil } }
  Fiber.schedule { yield watchers, to }
end

def readers(count)
  from, to = IO.pipe
  count.times { Fiber.schedule { from.readpartial(1) rescue nil } }
  Fiber.schedule { sleep 0; yield from, to }
end

if $PROGRAM_NAME == __FILE__
  Process.setrlimit(:NOFILE, Process.getrlimit(:NOFILE).last)
  Thread.current.report_on_exception = false
  Bench::Rows.run(CURVES, ITEMS, ARGV)
end

# frozen_string_literal: true

# Connections on which nothing happens, their clients in another process: in a task each, or at rest without one (Scheduler#on_ready).
module Bench
  # Only the schedulers of this library have it.
  NEEDS_ON_READY = { "threads" => [0, "has no on_ready"], "peer" => [0, "has no on_ready"] }.freeze

  # N connections, accepted and quiet.
  class Quiet
    MINOR_COLLECTIONS = 31
    SETTLED = 1 # seconds, in which a new wait is looked at several times

    def initialize(run)
      @run = run
      listener = run.listener("0.0.0.0")
      dialled = Thread::Queue.new
      run.spawn { dialled << run.outside("ping", listener.local_address.ip_port, run.point, run.point, 0) }
      @sockets = Array.new(run.point) { listener.accept }
      dialled.pop
    end

    def park = @sockets.each { |socket| @run.spawn { socket.wait_readable } }

    def rest
      scheduler = Fiber.scheduler
      block = ->(_events, _socket) {}
      @sockets.each { |socket| scheduler.on_ready(socket, transient: true, &block) }
    end

    # Bytes of memory that the block takes for each connection.
    def memory
      GC.start
      before = Bench.resident
      @run.measure(@run.point, warm_up: 0) { yield }
      GC.start
      @run.report(bytes: (Bench.resident - before) / @run.point)
    end

    # CPU of a minor collection before the block and after it.
    def collection
      before = minor_collection
      @run.measure(@run.point, warm_up: 0) { yield }
      @run.report(without_ms: before, with_ms: minor_collection)
    end

    # CPU while nothing happens.
    def cpu
      yield
      sleep SETTLED
      @run.measure(warm_up: 0) { |seconds, _| sleep seconds }
      @run.report(percent: @run[:cpu] / @run[:seconds] * 100)
    end

    private

    def minor_collection
      4.times { GC.start } # what is there is old
      Bench.median(Array.new(MINOR_COLLECTIONS) do
        before = Usage.clock(Process::CLOCK_PROCESS_CPUTIME_ID)
        GC.start(full_mark: false)
        (Usage.clock(Process::CLOCK_PROCESS_CPUTIME_ID) - before) * 1e3
      end)
    end
  end

  Workload.define(
    "rest_memory", title: "Memory per connection at rest of N", unit: "bytes", value: :bytes, better: :less, operations: 1, counted: false,
    points: [100, 1_000, 10_000, 18_000], axis: "connections at rest", without: NEEDS_ON_READY,
    about: "growth of resident memory when N TCP connections that are open already go to rest; the clients are another process"
  ) { |run| Quiet.new(run).then { |quiet| quiet.memory { quiet.rest } } }

  { "parked" => %w[park parked], "rest" => ["rest", "at rest"] }.each do |name, (method, words)|
    without = name == "rest" ? NEEDS_ON_READY : {}
    Workload.define(
      "#{name}_collection", title: "A minor collection with N connections #{words}", unit: "ms CPU", value: :with_ms, better: :less, operations: 1,
      counted: false, points: [100, 1_000, 10_000, 18_000], axis: "connections #{words}", without: without,
      about: "median of 31 with everything old; beside: the same before, when the sockets were there and nothing waited for them"
    ) { |run| Quiet.new(run).then { |quiet| quiet.collection { quiet.public_send(method) } } }

    Workload.define(
      "#{name}_cpu", title: "Doing nothing with N connections #{words}", unit: "% CPU", value: :percent, better: :less, operations: 5, least: 1,
      seconds: 7, rounds: 3, counted: false, points: [100, 1_000, 10_000, 18_000], axis: "connections #{words}", without: without,
      about: "five seconds at full scale, from one second after the last connection began to wait"
    ) { |run| Quiet.new(run).then { |quiet| quiet.cpu { quiet.public_send(method) } } }
  end

  Workload.define(
    "rest_accept", title: "Accepting N connections and putting them to rest", unit: "s", value: :seconds, better: :less, operations: 1, counted: false,
    points: [100, 1_000, 10_000, 18_000], axis: "connections", without: NEEDS_ON_READY,
    about: "Reactor::Server, from the first connect(2) in another process until all connections are at rest"
  ) do |run|
    scheduler = Fiber.scheduler
    listener = run.listener("0.0.0.0")
    server = Reactor::Server.new(listener) { |socket| socket.readpartial(8) }.start
    run.measure(run.point, warm_up: 0) do |count, _|
      run.spawn { run.outside("ping", listener.local_address.ip_port, count, count, 0) }
      sleep 0.002 until server.connections == count && scheduler.stats[:watchers] == count + 1
    end
    run.report(accept_us_cpu: run[:cpu] / run.point * 1e6)
  end

  { "keep" => [64, "64"], "1000" => [1_000, "1,000"] }.each do |name, (connections, words)|
    Workload.define(
      "rest_#{name}", title: "HTTP keep-alive, #{words} connections, served by Reactor::Server", unit: "requests/s", value: :rate,
      operations: 60_000, least: connections, without: NEEDS_ON_READY,
      about: "the server and the load of http_#{name}; a connection has a fiber while it is busy"
    ) { |run| Site.new(run, at_rest: true).measure(connections, "keep-alive") }
  end
end

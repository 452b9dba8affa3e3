# frozen_string_literal: true

# How long something that is due has to wait. Another process writes the time (CLOCK_MONOTONIC) to a connection about every
# millisecond; the task that reads it looks how long ago that was.
module Bench
  # Connections, the process that writes to them, and what their readers saw.
  class Pings
    def initialize(run, connections)
      @run = run
      @late = []
      @warm_up = [run.operations / Run::WARM_UP, 1].max
      @all = Thread::Queue.new
      listener = run.listener("0.0.0.0")
      port = listener.local_address.ip_port
      dialled = Thread::Queue.new
      run.spawn { dialled << run.outside("ping", port, connections, run.operations + @warm_up, 1000) }
      @sockets = Array.new(connections) { listener.accept }
      dialled.pop
    end

    # One task per connection, or at rest without one; returns when the last message has been read.
    def measure(at_rest: false)
      @sockets.each { |socket| at_rest ? rest(socket) : @run.spawn { listen(socket) } }
      sleep 0.1
      # The dialling process waits for a byte on the first connection, then writes.
      @run.measure(warm_up: 0) do
        @sockets.first.write("g")
        @all.pop
      end
      @run.latencies(@late.drop(@warm_up))
    end

    private

    def listen(socket)
      read(socket) while true
    rescue EOFError
      socket.close
    end

    def rest(socket) = Fiber.scheduler.on_ready(socket, transient: true, &(@on_ready ||= method(:on_ready).to_proc))

    def on_ready(_events, socket)
      read(socket)
      rest(socket)
    rescue EOFError
      socket.close
    end

    def read(socket)
      sent = socket.readpartial(8).unpack1("Q<")
      @late << ((Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - sent) / 1000.0)
      @all << nil if @late.size == @run.operations + @warm_up
    end
  end

  Workload.define(
    "wakeup", title: "Wake-up of one idle connection among N", unit: "us, p99", value: :p99, better: :less, operations: 2_000, least: 20,
    seconds: 2.5, baseline: true, counted: false, points: [100, 10_000, 18_000], axis: "idle connections",
    about: "from the write in another process, one about every ms, to the task that reads it; the scheduler sleeps in between"
  ) { |run| Pings.new(run, run.point).measure }

  Workload.define(
    "rest_wakeup", title: "Wake-up of one connection at rest among N", unit: "us, p99", value: :p99, better: :less, operations: 2_000, least: 20,
    seconds: 2.5, counted: false, points: [100, 1_000, 10_000, 18_000], axis: "connections at rest", without: NEEDS_ON_READY,
    about: "the same messages; a fresh fiber reads one (Scheduler#on_ready), and the connection goes to rest again"
  ) { |run| Pings.new(run, run.point).measure(at_rest: true) }

  Workload.define(
    "fairness", title: "A light task beside N always ready", unit: "us, p99", value: :p99, better: :less, operations: 1_000, least: 20,
    seconds: 1.2, counted: false, points: [0, 10, 1_000], axis: "tasks that are always ready",
    without: { "threads" => [1_000, "a message takes seconds there"] },
    about: "the same message to one task, beside N tasks that do nothing but sleep 0 in a loop"
  ) do |run|
    pings = Pings.new(run, 1)
    run.point.times do
      run.spawn { sleep 0 while true }
    end
    pings.measure
  end
end

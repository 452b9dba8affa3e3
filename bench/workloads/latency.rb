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
      listener = run.listener
      port = listener.local_address.ip_port
      dialled = Thread::Queue.new
      run.spawn { dialled << run.outside("ping", port, connections, run.operations + @warm_up, 1000) }
      @sockets = Array.new(connections) { listener.accept }
      dialled.pop
    end

    # One task per connection; returns when the last message has been read.
    def measure
      @sockets.each { |socket| @run.spawn { listen(socket) } }
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
      while true
        sent = socket.readpartial(8).unpack1("Q<")
        @late << ((Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - sent) / 1000.0)
        @all << nil if @late.size == @run.operations + @warm_up
      end
    rescue EOFError
      socket.close
    end
  end

  Workload.define(
    "wakeup", title: "Wake-up of one idle connection among N", unit: "us, p99", value: :p99, better: :less, operations: 2_000, least: 20,
    seconds: 2.5, baseline: true, latencies: true, counted: false, points: [100, 10_000], axis: "idle connections",
    about: "from the write in another process, one about every ms, to the task that reads it; the scheduler sleeps in between"
  ) { |run| Pings.new(run, run.point).measure }

  Workload.define(
    "fairness", title: "A light task beside N always ready", unit: "us, p99", value: :p99, better: :less, operations: 1_000, least: 20,
    seconds: 1.2, latencies: true, counted: false, points: [0, 10, 1_000], axis: "tasks that are always ready",
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

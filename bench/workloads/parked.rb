# frozen_string_literal: true

# What waiting costs: its memory, its end by IO#close, and doing nothing at all.
module Bench
  def self.resident = File.read("/proc/self/status")[/^VmRSS:\s+(\d+)/, 1].to_i * 1024

  Workload.define(
    "parked", title: "Memory per parked connection of N", unit: "bytes", value: :bytes, better: :less, operations: 1, counted: false,
    points: [100, 1_000, 10_000, 18_000], axis: "parked connections",
    about: "growth of resident memory when N tasks park in readpartial on TCP connections that are open already; all are woken afterwards, " \
           "by a byte each. Beside: microseconds to park and to wake one. Plain Ruby: N suspended fibers that wait for nothing",
    plain: lambda do |run|
      GC.start
      before = Bench.resident
      run.measure(run.point, warm_up: 1) { |count, _| @fibers = Array.new(count) { Fiber.new { Fiber.yield }.tap(&:resume) } }
      run.report(bytes: (Bench.resident - before) / run.point, park_us: run[:seconds] / run.point * 1e6)
    end
  ) do |run|
    count = run.point
    listener = run.listener("0.0.0.0")
    dialling = Thread::Queue.new
    run.spawn { dialling << run.outside("ping", listener.local_address.ip_port, count, count, 0) }
    sockets = Array.new(count) { listener.accept }
    dialling.pop
    woken = 0
    all = Thread::Queue.new
    GC.start
    before = Bench.resident
    bytes = nil
    run.measure(count, warm_up: 0) do
      sockets.each do |socket|
        run.start do
          socket.readpartial(8)
          woken += 1
          all << nil if woken == count
        end
      end
      bytes = (Bench.resident - before) / count
    end
    parked = run[:seconds]
    sockets.first.write("g")
    started = Usage.clock(Process::CLOCK_MONOTONIC)
    all.pop
    run.report(bytes: bytes, park_us: parked / count * 1e6, wake_us: (Usage.clock(Process::CLOCK_MONOTONIC) - started) / count * 1e6)
  end

  # CPU seconds of a block in which nothing is collected.
  def self.spent
    GC.disable
    before = Usage.clock(Process::CLOCK_PROCESS_CPUTIME_ID)
    yield
    (Usage.clock(Process::CLOCK_PROCESS_CPUTIME_ID) - before).tap { GC.enable }
  end

  def self.udp_sockets(count) = Array.new(count) { UDPSocket.new.tap { |socket| socket.bind("127.0.0.1", 0) } }

  Workload.define(
    "close", title: "IO#close with N parked readers", unit: "us CPU/close", value: :close_us, better: :less, operations: 1, counted: false,
    points: [10, 100, 1_000, 10_000], axis: "parked readers, each on its own socket",
    about: "CPU per IO#close of a socket that a task reads from, the task's wake-up with IOError included; no collection in between; " \
           "few readers are parked and closed again until there were 500 closes, the first of which, after a collection, cost most. Beside: a file for which no task waits, closed meanwhile. " \
           "Plain Ruby: the socket is closed, and IOError raised in a suspended fiber",
    plain: lambda do |run|
      spent = 0
      run.measure([500 / run.point, 1].max * run.point, warm_up: run.point) do |count|
        spent = (count / run.point).times.sum do
          parked = Bench.udp_sockets(run.point).map do |socket|
            [socket, Fiber.new { Fiber.yield rescue IOError }.tap(&:resume)]
          end
          GC.start
          Bench.spent { parked.each { |socket, fiber| socket.close || fiber.raise(IOError, "stream closed in another thread") } }
        end
      end
      run.report(close_us: spent / run[:operations] * 1e6)
    end
  ) do |run|
    files = 2_000
    rounds = [500 / run.point, 1].max
    began = woken = 0
    prepare = lambda do |count|
      began = woken = 0
      sockets = Bench.udp_sockets(count)
      sockets.each do |socket|
        run.spawn do
          began += 1
          socket.readpartial(1)
        rescue IOError
          woken += 1
        end
      end
      sleep 0.001 until began == count # on some schedulers a sleep may end before other tasks have run
      sleep(run.point < 100 ? 0.01 : 0.05)
      GC.start
      sockets
    end
    close = lambda do |sockets|
      Bench.spent do
        sockets.each(&:close)
        sleep 0 until woken == sockets.size
      end
    end
    close.call(prepare.call([run.point / Run::WARM_UP, 1].max))
    idle = Array.new(files) { File.open(File::NULL) }
    parked = prepare.call(run.point)
    idle_us = Bench.spent { idle.each(&:close) } / files * 1e6
    spent = nil
    run.measure(rounds * run.point, warm_up: 0) do
      spent = close.call(parked)
      (rounds - 1).times { spent += close.call(prepare.call(run.point)) }
    end
    run.report(close_us: spent / (rounds * run.point) * 1e6, idle_us: idle_us)
  end

  Workload.define(
    "idle", title: "Doing nothing beside N threads", unit: "% CPU", value: :percent, better: :less, operations: 5, least: 1, seconds: 5, rounds: 3, counted: false,
    points: [0, 1], axis: "other Ruby threads, each counting every 50 ms",
    about: "one task sleeps (5 s at full scale), alone or beside a Ruby thread that counts; switches are all voluntary ones of the process"
  ) do |run|
    counted = 0
    run.point.times { Thread.new { loop { [sleep(0.05), counted += 1] } } }
    run.measure(run.operations, warm_up: 0) { |count, _| sleep count }
    run.check(counted.zero?, run.point.zero?, "silence of the other thread")
    run.report(percent: run[:cpu] / run[:seconds] * 100, ticks: counted)
  end
end

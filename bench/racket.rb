# frozen_string_literal: true

# Racket's benchmark (mission.md, second system): N UDP sockets, each with a fiber blocked on it, then 10,000 one-byte
# exchanges over TCP between two fibers. The time should not depend on N.
require_relative "support"

ROUND_TRIPS = 10_000

def measure(parked)
  require "reactor"
  Bench.descriptors(parked + 64)
  Fiber.set_scheduler(Reactor::Scheduler.new)
  sockets = Array.new(parked) { UDPSocket.new.tap { |socket| socket.bind("127.0.0.1", 0) } }
  fibers = sockets.map { |socket| Fiber.schedule { socket.recvfrom(1) } }

  listener = TCPServer.new("127.0.0.1", 0)
  seconds = cpu = collected = nil
  Fiber.schedule do
    peer = listener.accept
    peer.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
    peer.write(peer.readpartial(1)) while true
  rescue EOFError
    peer.close
  end
  Fiber.schedule do
    socket = TCPSocket.new("127.0.0.1", listener.local_address.ip_port)
    socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
    trip = proc do
      socket.write("x")
      socket.readpartial(1)
    end
    500.times(&trip)
    collected = GC.total_time
    started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    cpu_started = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
    ROUND_TRIPS.times(&trip)
    seconds = Process.clock_gettime(Process::CLOCK_MONOTONIC) - started
    cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - cpu_started
    collected = (GC.total_time - collected) / 1e9
    socket.close
    fibers.each(&:kill)
  end
  Fiber.scheduler.run
  puts JSON.generate(seconds: seconds, cpu: cpu, gc: collected)
end

if ARGV.first == "--measure"
  measure(Integer(ARGV[1]))
else
  counts = [100, 1_000, 10_000]
  room = Bench.descriptors(counts.max + 64)
  puts "(limited to #{room} descriptors)" if counts.reject! { |count| count + 64 > room }
  samples = Bench.interleave(counts, rounds: 5) { |count| Bench.sample(__FILE__, "--measure", count) }
  puts "#{ROUND_TRIPS} TCP round trips beside N parked fibers, medians of 5 interleaved rounds. #{Bench.about}"
  middle = ->(count, &value) { Bench.median(samples[count].map(&value)) }
  elapsed = ->(sample) { sample[:seconds] }
  without_gc = ->(sample) { sample[:seconds] - sample[:gc] }
  first = counts.first
  Bench.table(
    ["N", "seconds", "CPU seconds", "ratio to N=#{first}", "of it in GC", "ratio without GC"],
    counts.map do |count|
      [count, *[middle.(count, &elapsed), middle.(count) { _1[:cpu] }, middle.(count, &elapsed) / middle.(first, &elapsed),
                middle.(count) { _1[:gc] }, middle.(count, &without_gc) / middle.(first, &without_gc)].map { format("%.3f", _1) }]
    end
  )
  puts "GC scans the stack of every suspended fiber each time it runs; that part grows with N whatever the scheduler."
end

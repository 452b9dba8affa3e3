# frozen_string_literal: true

# What N fibers parked on sockets cost: bytes each (resident memory), and the time to park and to wake them all. A bare
# suspended Fiber is measured beside, which is the part that belongs to the VM.
require_relative "support"

def resident = File.read("/proc/self/status")[/^VmRSS:\s+(\d+)/, 1].to_i * 1024

def clock = Process.clock_gettime(Process::CLOCK_MONOTONIC)

def measure_bare(count)
  before = resident
  fibers = Array.new(count) { Fiber.new { Fiber.yield }.tap(&:resume) }
  puts JSON.generate(bytes: (resident - before) / count, count: fibers.size)
end

def measure(count)
  require "reactor"
  Bench.descriptors((2 * count) + 64)
  scheduler = Reactor::Scheduler.new
  Fiber.set_scheduler(scheduler)
  pairs = Array.new(count) { UNIXSocket.pair }
  woken = 0
  GC.start
  before = resident
  started = clock
  pairs.each { |left, _| Fiber.schedule { woken += 1 if left.readpartial(1) } }
  parked = clock - started
  bytes = (resident - before) / count
  started = clock
  pairs.each { |_, right| right.write("x") }
  scheduler.run
  raise "#{count - woken} fibers were not woken" unless woken == count

  puts JSON.generate(bytes: bytes, park: parked / count * 1e6, wake: (clock - started) / count * 1e6)
end

case ARGV.first
when "--measure" then measure(Integer(ARGV[1]))
when "--bare" then measure_bare(Integer(ARGV[1]))
else
  counts = [100, 1_000, 9_000]
  room = Bench.descriptors((2 * counts.max) + 64)
  counts.map! { |count| [count, (room - 64) / 2].min }.uniq!
  samples = Bench.interleave(counts, rounds: 3) { |count| Bench.sample(__FILE__, "--measure", count) }
  puts "N fibers parked on UNIX sockets, medians of 3 rounds. #{Bench.about}"
  Bench.table(
    ["N", "bytes per fiber", "park, us each", "wake, us each"],
    counts.map do |count|
      middle = ->(key) { Bench.median(samples[count].map { _1[key] }) }
      [count, middle[:bytes].round, format("%.2f", middle[:park]), format("%.2f", middle[:wake])]
    end
  )
  puts "A bare suspended Fiber of this Ruby takes #{Bench.sample(__FILE__, '--bare', counts.max)[:bytes]} bytes."
end

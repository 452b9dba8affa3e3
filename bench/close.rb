# frozen_string_literal: true

# IO#close (mission.md, third system): N fibers read from a socket each, and all the sockets are closed by another fiber.
# CPU per close, the waking of its reader with IOError included; and of closing a file nobody waits for, meanwhile.
require_relative "support"

IDLE_CLOSES = 2_000

def cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)

def measure(count)
  require "reactor"
  Bench.descriptors((2 * count) + IDLE_CLOSES + 64)
  Fiber.set_scheduler(Reactor::Scheduler.new)
  woken = 0
  pairs = Array.new(count) { UNIXSocket.pair }
  pairs.each do |left, _|
    Fiber.schedule do
      left.readpartial(1)
    rescue IOError
      woken += 1
    end
  end
  files = Array.new(IDLE_CLOSES) { File.open(File::NULL) }
  idle = busy = nil
  Fiber.schedule do
    GC.start
    GC.disable
    before = cpu
    files.each(&:close)
    idle = (cpu - before) / IDLE_CLOSES * 1e6
    before = cpu
    pairs.each { |left, _| left.close }
    sleep 0 until woken == count
    busy = (cpu - before) / count * 1e6
  end
  Fiber.scheduler.run
  raise "#{count - woken} readers were not woken" unless woken == count

  puts JSON.generate(idle: idle, busy: busy)
end

if ARGV.first == "--measure"
  measure(Integer(ARGV[1]))
else
  room = Bench.descriptors(30_000)
  counts = [10, 100, 1_000, 10_000].map { |count| [count, (room - IDLE_CLOSES - 128) / 2].min }.uniq
  samples = Bench.interleave(counts, rounds: 5) { |count| Bench.sample(__FILE__, "--measure", count) }
  puts "CPU microseconds per IO#close with N parked readers, GC off, medians of 5 interleaved rounds. #{Bench.about}"
  Bench.table(
    ["N", "a file nobody waits for", "a reader's socket, its wake-up included"],
    counts.map do |count|
      [count, *%i[idle busy].map { |key| format("%.2f", Bench.median(samples[count].map { _1[key] })) }]
    end
  )
end

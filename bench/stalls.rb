# frozen_string_literal: true

# Whether work blocks the loop: a ticker that is due each millisecond, beside work that waits for disks, names, children and C
# code. Measured are how late the ticker is, how much the work does meanwhile, and what it costs, in fibers and in plain threads.
# docs/measured.md has the lateness.
#
#   bin/bench stalls [ROW…]                     rows of WORK
#   ROUNDS=5 MODES="epoll uring" bin/bench stalls    three rounds of the default backend and of threads otherwise
require_relative "support"
require "fileutils"
require "zlib"

DIRECTORY = File.expand_path("../tmp/stalls", __dir__)
LARGE = File.join(DIRECTORY, "large")
MEGABYTE = 1 << 20
PIECES = 1_000
TASKS = 4

def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

def cpu = Process.times.then { |times| times.utime + times.stime + times.cutime + times.cstime }

# Each row: the unit of what is done, and the work, which returns how much that was.
WORK = {
  "nothing" => ["", ->(_) { sleep(1).then { 0 } }],
  # Into the same memory each time, like a program that is given a buffer to keep. How a new one lies to the page alone makes 12
  # or 18 GB/s of it.
  "cold reads of 1 MiB" => ["MiB/s", lambda do |tasks|
    tasks.together(TASKS) do |task|
      buffer = String.new(capacity: MEGABYTE)
      File.open(LARGE) { |file| task.step(PIECES - 1, TASKS) { |piece| file.pread(MEGABYTE, piece * MEGABYTE, buffer) } }
    end
    PIECES
  end],
  "writes of 4 KiB and fsync" => ["per s", lambda do |tasks|
    tasks.together(TASKS) do |task|
      File.open(File.join(DIRECTORY, "written#{task}"), "wb") do |file|
        file.sync = true
        50.times { file.write("x" * 4096) && file.fsync }
      end
    end
    TASKS * 50
  end],
  "Deflate of 8 MiB, 8 at a time" => ["MiB/s", lambda do |tasks|
    data = "reactor " * MEGABYTE
    tasks.together(8) { Zlib::Deflate.deflate(data) }
    64
  end],
  "TCPSocket.new of localhost" => ["per s", lambda do |tasks|
    server = TCPServer.new("localhost", 0)
    tasks.together(20) { 10.times { TCPSocket.new("localhost", server.local_address.ip_port).close } }
    server.close
    200
  end],
  "children, 20 at a time" => ["per s", lambda do |tasks|
    tasks.together(20) { 10.times { system("true") || raise("no child") } }
    200
  end]
}.freeze

# Seconds of work, at least: what is done sooner is done again, or the worst of a few ticks would be all there is. (The
# machine's own hiccups of 1 to 5 ms come about once a second.) What is cold is so only once.
LEAST = 1

def measure(row, name)
  tasks, work = Bench::Tasks.new(name), WORK.fetch(row).last
  busy, late, result = true, [], {}
  tasks.start do
    tasks.start do
      while busy
        due = now + 0.001
        sleep(0.001)
        late << (now - due)
      end
    end
    sleep(0.02)
    late.clear
    began, used = now, cpu
    done = work.call(tasks)
    done += work.call(tasks) until row.start_with?("cold") || now - began >= LEAST
    result = { rate: done / (now - began), cpu: (cpu - used) * 1000 }
    busy = false
  end
  tasks.finish
  puts JSON.generate(result.merge(Bench.latencies(late)))
end

def write_file
  FileUtils.mkdir_p(DIRECTORY)
  noise = Random.new(1).bytes(MEGABYTE)
  File.open(LARGE, "wb") { |file| PIECES.times { file.write(noise) } && file.fsync }
end

# Out of the page cache: posix_fadvise(2), which needs no privilege.
def drop = File.open(LARGE) { |file| file.advise(:dontneed) }

if ARGV.first == "--measure"
  measure(*ARGV.drop(1))
  exit
end

require "reactor"
rounds = Integer(ENV.fetch("ROUNDS", "3"))
rows = ARGV.empty? ? WORK.keys : ARGV
modes = ENV.fetch("MODES") { "#{Reactor.backend} threads" }.split
begin
  write_file
  samples = Bench.interleave(rows.product(modes), rounds: rounds) do |row, mode|
    drop
    Bench.sample(__FILE__, "--measure", row, mode)
  end
ensure
  FileUtils.rm_rf(DIRECTORY)
end
puts "Lateness of a 1 ms ticker in ms, what the work beside it achieves, and CPU ms (children's too); medians of #{rounds} interleaved rounds, " \
     "#{TASKS} tasks at files. #{Bench.about}"
lines = samples.map do |(row, mode), taken|
  median = ->(key) { Bench.median(taken.map { |sample| sample[key] }) }
  [row, mode, *%i[p50 p99 max].map { |key| format("%.2f", median[key] * 1000) }, median[:rate].round, WORK.fetch(row).first, median[:cpu].round]
end
Bench.table(["beside", "mode", "p50", "p99", "max", "done", "unit", "CPU"], lines)

# frozen_string_literal: true

# What idle connections cost: bytes of each, beside its sockets; a minor collection; how late one is served that gets a byte; CPU while
# all are idle. In a fiber for each connection, and resting by Scheduler#on_ready. Each sample is a process of its own, in which both
# ends of the connections are.
require_relative "support"

COUNTS = [100, 1_000, 9_000].freeze
MODES = %w[fiber rest].freeze
ROUNDS = 3
WAKES = 500
IDLE_SECONDS = 3

# One sample.
class IdleConnections
  def initialize(mode, count)
    require "reactor"
    Process.setrlimit(:NOFILE, Process.getrlimit(:NOFILE).last)
    @scheduler = Reactor::Scheduler.new
    Fiber.set_scheduler(@scheduler)
    @pairs = Array.new(count) { UNIXSocket.pair }
    @mode = mode
    @waits = []
  end

  def run
    bytes, before = memory, minor_collection
    @mode == "rest" ? rest : park
    bytes = (memory - bytes) / @pairs.size
    collection = minor_collection
    Fiber.schedule do
      wake
      waits = @waits.sort
      puts JSON.generate(bytes: bytes, collection_without: before, collection: collection, p50: waits[WAKES / 2], p99: waits[WAKES * 99 / 100], idle: idle)
      $stdout.flush
      exit!(0)
    end
    @scheduler.run
  end

  private

  def rest
    block = lambda do |_, socket|
      served(socket)
      @scheduler.on_ready(socket, transient: true, &block)
    end
    @pairs.each { |socket, _| @scheduler.on_ready(socket, transient: true, &block) }
  end

  def park = @pairs.each { |socket, _| Fiber.schedule { loop { socket.wait_readable && served(socket) } } }

  def served(socket)
    socket.read_nonblock(1)
    @waits << (clock - @sent) * 1e6
  end

  # With garbage as a program makes it, so that collections fall between.
  def wake
    WAKES.times do |number|
      sleep 0.0005
      Array.new(200) { "x" * 60 }
      @sent = clock
      @pairs[number * 7919 % @pairs.size].last.write("x")
      sleep 0.0001 until @waits.size > number
    end
  end

  def idle
    before = cpu
    sleep IDLE_SECONDS
    (cpu - before) / IDLE_SECONDS * 100
  end

  def memory
    2.times { GC.start }
    File.read("/proc/self/smaps_rollup")[/^Pss:\s+(\d+)/, 1].to_i * 1024
  end

  def minor_collection
    Array.new(30) { cpu.then { |before| GC.start(full_mark: false); cpu - before } }.sort[15] * 1e3
  end

  def clock = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
end

IdleConnections.new(ARGV[1], Integer(ARGV[2])).run if ARGV.first == "--measure" # which ends the process

samples = Bench.interleave(COUNTS.product(MODES), rounds: ROUNDS) { |count, mode| Bench.sample(__FILE__, "--measure", mode, count) }
rows = samples.map do |(count, mode), found|
  middle = ->(key, digits) { Bench.median(found.map { |sample| sample[key] }).round(digits) }
  [count, mode, middle.(:bytes, 0), middle.(:collection_without, 2), middle.(:collection, 2), middle.(:p50, 0), middle.(:p99, 0), middle.(:idle, 2)]
end
puts Bench.about
Bench.table(["connections", "", "bytes each", "minor GC without, ms CPU", "with", "p50, us", "p99", "idle, % CPU"], rows)

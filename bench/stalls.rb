# frozen_string_literal: true

# Whether work blocks the loop: a ticker that is due each millisecond, beside work that waits for disks, names, children and C
# code. Measured are how late the ticker is, how much the work does meanwhile, and what it costs, in fibers and in plain threads.
require_relative "support"
require "fileutils"

# Where the work finds its files; the name of the row and of the mode are what --measure is given.
DIRECTORY = File.expand_path("../tmp/stalls", __dir__)
LARGE = File.join(DIRECTORY, "large")
MEGABYTE = 1 << 20
PIECES = 1_000
SMALL_FILES = 1_000
SMALL_SIZE = 256 << 10
TASKS = 4
COPY = 256 * MEGABYTE
BUFFERS = Array.new(TASKS) { String.new(capacity: MEGABYTE) }

# Modes that show how much of the lateness is the VM's own: a single plain thread that does all the tasks one after the
# other; and what is allocated again and again not given back to the kernel in between (mallopt(3), by the environment).
ALONE = "one thread"
KEPT = ", memory kept"
KEEPING = { "MALLOC_MMAP_THRESHOLD_" => (32 << 20).to_s, "MALLOC_TRIM_THRESHOLD_" => (256 << 20).to_s }.freeze

# Rows in which the VM itself keeps the GVL for longer than a millisecond; where, and what shows it.
ALLOCATED = [
  "each String of 256 KiB is memory the VM asks of the kernel, page by page, and gives back in garbage collections of 3 to 10 ms",
  %w[reactor threads].map { |mode| mode + KEPT }
].freeze
HELD = {
  "files-cold" => ALLOCATED,
  "files" => ALLOCATED,
  "deflate" => ["zlib copies its input of 8 MiB with the GVL held, 4 ms each time, before it offers the work to anybody", [ALONE]],
  "children" => ["the VM makes each child by fork(2), with the GVL held until that runs the other program: 1 ms, 3 the first time", [ALONE]]
}.freeze

def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

def cpu = Process.times.then { |times| times.utime + times.stime + times.cutime + times.cstime }

# Tasks in fibers of a scheduler, or in threads.
class Mode
  def initialize(name)
    name = name.delete_suffix(KEPT)
    @alone = name == ALONE
    @native = name != "threads" && !@alone
    return unless @native

    require "reactor"
    Fiber.set_scheduler(Reactor::Scheduler.new(backend: name == "reactor" ? nil : name))
  end

  def start(&) = @native ? Fiber.schedule(&) : Thread.new(&)

  def finish(tasks) = @native ? nil : tasks.each(&:join)

  # Runs count tasks and waits for all.
  def together(count, &block)
    return count.times(&block) if @alone

    left = Thread::Queue.new
    tasks = Array.new(count) { |index| start { yield(index); left << index } }
    count.times { left.pop }
    finish(tasks)
  end

  # Runs the block in a task of its own to the end of everything.
  def run(&block)
    task = start(&block)
    @native ? Fiber.scheduler.run : task.join
  end
end

# A process without a scheduler that accepts connections, and does with each what the row needs. It is started before the clock,
# because to make a child takes the VM longer than anything that is measured.
module Sink
  RESPONSES = {
    "copy" => "Thread.new { nil while c.read(1 << 20); c.close }",
    "copy-cold" => "Thread.new { nil while c.read(1 << 20); c.close }",
    "names" => "c.close"
  }.freeze

  class << self
    attr_reader :port

    def with(row)
      return yield unless RESPONSES.key?(row)

      server = TCPServer.new("localhost", 0)
      @port = server.local_address.ip_port
      script = "require 'socket'; s = TCPServer.for_fd(#{server.fileno}); loop { c = s.accept; #{RESPONSES[row]} }"
      child = Process.spawn(RbConfig.ruby, "-e", script, server.fileno => server)
      TCPSocket.new("localhost", @port).tap(&:close_write).read
      yield
    ensure
      if child
        Process.kill("TERM", child)
        Process.wait(child)
      end
    end
  end
end

# The work beside the ticker. Each method is one run of a row, and returns how much was done.
module Work
  module_function

  def nothing(_) = sleep(1).then { 0 }

  # Into the same memory each time, like a program that is given a buffer to keep. (How a new one lies to the page, which
  # is the allocator's choice and changes with each collection, alone makes 12 or 18 GB/s of it: "rep movsb" of AMD's Zen
  # is slow to a place 16 bytes beyond the page offset it copies from.)
  def pread(mode)
    mode.together(TASKS) do |task|
      buffer = BUFFERS[task]
      File.open(LARGE) do |file|
        task.step(PIECES - 1, TASKS) { |piece| file.pread(MEGABYTE, piece * MEGABYTE, buffer) }
      end
    end
    PIECES
  end

  def files(mode)
    mode.together(TASKS) do |task|
      task.step(SMALL_FILES - 1, TASKS) do |number|
        raise "short read" unless File.read(small(number)).bytesize == SMALL_SIZE
      end
    end
    SMALL_FILES * SMALL_SIZE.fdiv(MEGABYTE)
  end

  def copy(mode)
    mode.together(1) do
      Socket.tcp("127.0.0.1", Sink.port) do |socket|
        copied = File.open(LARGE) { |file| IO.copy_stream(file, socket, COPY) }
        raise "#{copied} bytes copied" unless copied == COPY
      end
    end
    COPY.fdiv(MEGABYTE)
  end

  # Small records, each on the disk before the next.
  def sync(mode)
    mode.together(TASKS) do |task|
      File.open(written(task), "wb") do |file|
        file.sync = true
        50.times { file.write("x" * 4096) && file.fsync }
      end
    end
    TASKS * 50
  end

  # Each into a file of its own.
  def pwrite(mode)
    mode.together(TASKS) do |task|
      data = "x" * (512 << 10)
      File.open(written(task), "wb") do |file|
        100.times { |piece| file.pwrite(data, piece * data.bytesize) }
      end
    end
    TASKS * 50
  end

  def deflate(mode)
    data = "reactor " * MEGABYTE
    mode.together(8) { Zlib::Deflate.deflate(data) }
    64
  end

  def names(mode)
    mode.together(20) { 10.times { TCPSocket.new("localhost", Sink.port).close } }
    200
  end

  def children(mode)
    mode.together(20) { 10.times { system("true") || raise("no child") } }
    200
  end

  # 64 MiB by a pipe that blocks, with pauses in which nothing is there.
  def stdin(mode)
    bytes = 0
    mode.together(1) do
      bytes += $stdin.readpartial(65_536).bytesize while true
    rescue EOFError
      nil
    end
    bytes.fdiv(MEGABYTE)
  end

  def written(number) = File.join(DIRECTORY, "written#{number}")

  def small(number) = File.join(DIRECTORY, "small#{number}")
end

# title, unit of what is done, method, whether the page cache is emptied first
ROWS = {
  "nothing" => ["nothing", "", :nothing, false],
  "cold" => ["1,000 x 1 MiB pread, cold", "MiB/s", :pread, true],
  "warm" => ["1,000 x 1 MiB pread, warm", "MiB/s", :pread, false],
  "files-cold" => ["File.read of 1,000 files of 256 KiB, cold", "MiB/s", :files, true],
  "files" => ["File.read of 1,000 files of 256 KiB, warm", "MiB/s", :files, false],
  "copy" => ["copy_stream of 256 MiB to a socket", "MiB/s", :copy, false],
  "copy-cold" => ["copy_stream of 256 MiB to a socket, cold", "MiB/s", :copy, true],
  "sync" => ["200 x write of 4 KiB and fsync", "per s", :sync, false],
  "pwrite" => ["400 x pwrite of 512 KiB", "MiB/s", :pwrite, false],
  "deflate" => ["8 x 8 MiB Zlib deflate", "MiB/s", :deflate, false],
  "names" => ['200 x TCPSocket.new("localhost", port)', "per s", :names, false],
  "children" => ['200 x system("true"), 20 at a time', "per s", :children, false],
  "stdin" => ["$stdin, 64 MiB by a blocking pipe", "MiB/s", :stdin, false]
}.freeze

# Seconds of work, at least: what is done sooner is done again, or the worst of a few ticks would be all there is. (The
# machine's own hiccups of 1 to 5 ms come about once a second.) What is cold is so only once, and standard input is read once.
LEAST = 1

def measure(row, name)
  require "zlib"
  method, cold = ROWS.fetch(row).last(2)
  once = cold || row == "stdin"
  mode = Mode.new(name)
  late = []
  result = {}
  mode.run do
    busy = true
    ticker = mode.start do
      while busy
        due = now + 0.001
        sleep(0.001)
        late << (now - due)
      end
    end
    sleep(0.02)
    late.clear
    began, used = now, cpu
    done = Work.public_send(method, mode)
    done += Work.public_send(method, mode) until once || now - began >= LEAST
    took, used = now - began, cpu - used
    busy = false
    mode.finish([ticker])
    result = { rate: done / took, cpu: used * 1000 }
  end
  late.sort!
  result.update(p50: late[late.size / 2], p99: late[(late.size * 0.99).floor], max: late.last)
  puts JSON.generate(result)
end

# The process that is measured, with a blocking pipe as its standard input where that is the row.
def sample(row, mode)
  drop if ROWS.fetch(row)[3]
  keeping = mode.end_with?(KEPT) ? KEEPING : {}
  return Bench.sample(__FILE__, "--measure", row, mode, environment: keeping) unless row == "stdin"

  output, status = Open3.popen2(*Bench::RUBY, __FILE__, "--measure", row, mode) do |input, result, process|
    piece = "x" * MEGABYTE
    64.times do
      sleep(0.003)
      input.write(piece)
    end
    input.close
    [result.read, process.value]
  end
  raise "#{row} #{mode} failed: #{status}" unless status.success?

  JSON.parse(output.lines.last, symbolize_names: true)
end

def prepare
  FileUtils.mkdir_p(DIRECTORY)
  noise = Random.new(1).bytes(MEGABYTE)
  File.open(LARGE, "wb") { |file| PIECES.times { file.write(noise) } && file.fsync }
  SMALL_FILES.times { |number| File.binwrite(Work.small(number), noise[0, SMALL_SIZE]) }
  system("sync") || raise("sync failed")
end

# Empties the page cache of our files: posix_fadvise(2), which needs no privilege.
def drop
  [LARGE, *Array.new(SMALL_FILES) { |number| Work.small(number) }].each do |path|
    File.open(path) { |file| file.advise(:dontneed) }
  end
end

# The cache is warm where it is to be.
def warm = [LARGE, *Array.new(SMALL_FILES) { |number| Work.small(number) }].each { |path| IO.copy_stream(path, File::NULL) }

def milliseconds(samples, key) = format("%.2f", Bench.median(samples.map { |sample| sample[key] }) * 1000)

def figures(samples)
  [
    *%i[p50 p99 max].map { |key| milliseconds(samples, key) },
    format("%.0f", Bench.median(samples.map { |sample| sample[:rate] })),
    format("%.0f", Bench.median(samples.map { |sample| sample[:cpu] }))
  ]
end

if ARGV.first == "--measure"
  Sink.with(ARGV[1]) { measure(*ARGV[1, 2]) }
else
  require "reactor"
  rounds = Integer(ENV.fetch("ROUNDS", "3"))
  rows = ARGV.empty? ? ROWS.keys : ARGV
  modes = ENV.fetch("MODES") { "#{Reactor.backend} threads" }.split
  begin
    Bench.progress "writing files"
    prepare
    cells = rows.flat_map { |row| [*modes, *HELD[row]&.last].map { |mode| [row, mode] } }
    samples = Bench.interleave(cells, rounds: rounds) do |row, mode|
      warm unless ROWS.fetch(row)[3]
      sample(row, mode)
    end
  ensure
    FileUtils.rm_rf(DIRECTORY)
  end
  puts "Lateness of a 1 ms ticker in ms, what the work beside it achieves, and CPU ms (children's too); medians of " \
       "#{rounds} interleaved rounds, #{TASKS} tasks at files. #{Bench.about}"
  table = cells.map do |row, mode|
    ["#{ROWS[row][0]}#{'*' if HELD[row]}", mode, *figures(samples[[row, mode]]).insert(4, ROWS[row][1])]
  end
  Bench.table(["beside", "mode", "p50", "p99", "max", "done", "unit", "CPU"], table.map { |r| [*r[0, 5], *r[5, 3]] })
  puts
  HELD.each { |row, (reason, shown)| puts "* #{ROWS[row][0]}: #{reason} (see: #{shown.join("; ")})" if rows.include?(row) }
  puts "* #{ALONE}: a plain thread does all of it, one after the other. #{KEPT[2..]}: #{KEEPING.map { _1.join("=") }.join(" ")}"
end

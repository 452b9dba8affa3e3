# frozen_string_literal: true

# The program that main.rb runs under supervision: what fibers do with sockets, pipes, files, terminals, children, names, threads
# and timers. A step that fails is reported and done again, so that at the end nothing is missing.
#
# It prints `error TASK CLASS` for each failure, `fd NUMBER TASK` for the descriptors of a task, and `| …` for what must be the
# same in each run.

require "reactor"
require "io/nonblock"
require "pty"
require "socket"
require "tempfile"
require "timeout"
require "zlib"
require_relative "marks"

class Program
  TRIES = 5

  def initialize
    @outcomes = {}
    @said = []
  end

  def run
    descriptors = leftovers
    Marks.begin
    round(TASKS)
    Marks.end
    first = @outcomes
    @outcomes = {}
    round(TASKS - %i[names]) # afterwards everything works as before
    first.sort.each { |name, outcome| say "| #{name} #{outcome.inspect}" }
    say "| again #{@outcomes.all? { |name, outcome| first[name] == outcome }}"
    GC.start
    until_closed(descriptors)
    say "| descriptors left #{leftovers - descriptors}"
    say "descriptors #{open_files}" if ENV["REACTOR_LOUD"]
    say "| children left #{children?}"
    $stdout.write(@said.join("\n"), "\n")
  end

  private

  def say(line)
    @said << line
    warn line if ENV["REACTOR_LOUD"]
  end

  def round(tasks)
    scheduler = open
    Fiber.set_scheduler(scheduler)
    tasks.each { |name| start(name) }
    again(:run) { scheduler.run }
    say "| fibers left #{scheduler.live}"
    Fiber.set_scheduler(nil)
  end

  # An error of the poll is raised in the root fiber, also after the new fiber has begun.
  def start(name)
    started = false
    again(:start) { started || Fiber.schedule { started = true; task(name) } }
  end

  # Where the ring is refused for good, the next backend has to do.
  def open
    again(:open) { Reactor::Scheduler.new }
  rescue ArgumentError => error
    say "refused #{error.message}"
    Reactor::Scheduler.new(backend: :epoll)
  end

  def task(name)
    @outcomes[name] = send(name)
  rescue StandardError => error
    @outcomes[name] = "#{error.class}: #{error.message}"
  end

  # A step that changes nothing if it fails.
  def again(name)
    tries = 0
    begin
      yield
    rescue SystemCallError, SocketError => error
      say "error #{name} #{error.class}"
      say error.full_message(highlight: false) if ENV["REACTOR_LOUD"]
      (tries += 1) < TRIES ? retry : raise
    end
  end

  def owns(name, *ios)
    ios.each { |io| say "fd #{io.fileno} #{name}" }
  end

  # A worker that ends after its scheduler keeps a descriptor until then.
  def until_closed(count)
    500.times do
      break if leftovers <= count

      sleep 0.002
    end
  end

  def open_files
    Dir.children("/proc/self/fd").map { |number| File.readlink("/proc/self/fd/#{number}") rescue nil }
  end

  def leftovers = Dir.children("/proc/self/fd").size

  def children?
    Process.wait(-1, Process::WNOHANG)
    true
  rescue Errno::ECHILD
    false
  end

  # --- tasks -----------------------------------------------------------------------------------------------------------

  def stream
    ours, theirs = UNIXSocket.pair
    owns(:stream, ours, theirs)
    ended = Thread::Queue.new
    Fiber.schedule do
      while (line = again(:stream) { theirs.gets })
        again(:stream) { theirs.write(line.upcase) }
      end
    ensure
      theirs.close
      ended.close
    end
    answers = %w[a b c].map do |word|
      again(:stream) { ours.write("#{word}\n") }
      again(:stream) { ours.gets }
    end
    ours.close
    ended.pop
    answers.join
  end

  def tcp
    listener = TCPServer.new("127.0.0.1", 0)
    owns(:tcp, listener)
    port = listener.addr[1]
    Fiber.schedule { greet(listener) }
    socket = again(:tcp) { TCPSocket.new("127.0.0.1", port) }
    owns(:tcp, socket)
    [again(:tcp) { socket.gets }, again(:tcp) { socket.gets }].inspect
  ensure
    [listener, socket].compact.each(&:close)
  end

  # Each connection: a client that fails connects again.
  def greet(listener)
    loop do
      accepted = again(:tcp) { listener.accept }
      owns(:tcp, accepted)
      again(:tcp) { accepted.write("hello\n") }
      accepted.close
    end
  rescue IOError
    nil # the listener is closed
  end

  def datagrams
    ours, theirs = UNIXSocket.pair(:DGRAM)
    owns(:datagrams, ours, theirs)
    Fiber.schedule { again(:datagrams) { theirs.send("datagram", 0) } }
    again(:datagrams) { ours.recv(100) }
  ensure
    [ours, theirs].compact.each(&:close)
  end

  # Writes of a page each reach a full pipe wholly or not at all.
  def pipe
    reader, writer = IO.pipe
    writer.sync = true
    owns(:pipe, reader, writer)
    Fiber.schedule do
      24.times { |index| again(:pipe) { writer.write((65 + index).chr * 4096) } }
      writer.close
    end
    sleep 0.001
    bytes = +""
    while (piece = again(:pipe) { part(reader) })
      bytes << piece
    end
    "#{bytes.size} #{Zlib.crc32(bytes)}"
  ensure
    [reader, writer].compact.each(&:close)
  end

  def part(reader)
    reader.readpartial(10_000)
  rescue EOFError
    nil
  end

  def terminal
    ours, theirs = PTY.open
    owns(:terminal, ours, theirs)
    [ours, theirs].each { |io| io.nonblock = false }
    lines = Thread::Queue.new
    Fiber.schedule { lines << again(:terminal) { ours.gets } }
    again(:terminal) { theirs.write("typed\n") }
    first = lines.pop
    Fiber.schedule { lines << again(:terminal) { theirs.gets } }
    again(:terminal) { ours.write("answer\n") }
    [first, lines.pop].inspect
  ensure
    [ours, theirs].compact.each(&:close)
  end

  def file
    text = Array.new(40_000) { |index| "line #{index}\n" }.join
    Tempfile.create("reactor-faults", ENV.fetch("REACTOR_SCRATCH", Dir.tmpdir)) do |file|
      owns(:file, file)
      file.sync = true
      again(:file) { file.rewind; file.write(text) }
      again(:file) { file.fsync }
      again(:file) { file.fdatasync }
      again(:file) { file.pwrite("LINE", 0) }
      head = again(:file) { file.pread(9, 0) }
      whole = again(:file) { file.rewind; file.read }
      small = again(:file) { file.pos = 100; file.readpartial(50) }
      copied = again(:file) { copy(file) }
      "#{head.inspect} #{whole.size} #{Zlib.crc32(whole)} #{small.inspect} #{copied}"
    end
  end

  def copy(file)
    reader, writer = IO.pipe
    owns(:file, reader, writer)
    Fiber.schedule do
      IO.copy_stream(file, writer, 5000, 0)
    rescue SystemCallError => error
      say "error file #{error.class}"
    ensure
      writer.close
    end
    copied = again(:file) { reader.read }
    reader.close
    copied.size == 5000 ? "copied" : copy(file)
  end

  # Pages that the kernel has dropped.
  def uncached
    Tempfile.create("reactor-faults", ENV.fetch("REACTOR_SCRATCH", Dir.tmpdir)) do |file|
      owns(:uncached, file)
      file.sync = true
      again(:uncached) { file.rewind; file.write("u" * 200_000) }
      again(:uncached) { file.fsync }
      file.advise(:dontneed)
      small = again(:uncached) { file.pread(1000, 5000) }
      file.advise(:dontneed)
      large = again(:uncached) { file.rewind; file.read(150_000) }
      "#{small.size} #{large.size}"
    end
  end

  def child
    pid = spawn("exit 3")
    _, status = again(:child) { Process.wait2(pid) }
    any = spawn("exit 4")
    again(:child) { Process.wait(any, Process::WUNTRACED) }
    output = again(:child) { IO.popen("echo output") { |io| owns(:child, io); io.read } }
    "#{status.exitstatus} #{output}"
  end

  def names
    again(:names) { Addrinfo.getaddrinfo("localhost", 80, :INET, :STREAM).map(&:ip_address) }.inspect
  end

  def threads
    queue = Thread::Queue.new
    lock = Thread::Mutex.new
    thread = Thread.new { 3.times { |index| lock.synchronize { queue << index } } }
    taken = Array.new(3) { lock.synchronize { nil }; queue.pop }
    thread.join
    taken.inspect
  end

  def timers
    slept = sleep(0.001)
    limited = begin
      Timeout.timeout(0.002) { sleep 5 }
    rescue Timeout::Error => error
      error.class
    end
    ours, theirs = UNIXSocket.pair
    owns(:timers, ours, theirs)
    waited = again(:timers) { ours.wait_readable(0.001) }
    ours.timeout = 0.001
    read = begin
      again(:timers) { ours.readpartial(1) }
    rescue IO::TimeoutError => error
      error.class
    end
    [slept.class, limited, waited, read].inspect
  ensure
    [ours, theirs].compact.each(&:close)
  end

  def selects
    reader, writer = IO.pipe
    owns(:selects, reader, writer)
    Fiber.schedule { again(:selects) { writer.write_nonblock("x") } }
    ready = again(:selects) { IO.select([reader], nil, nil, 5) }
    ready.first.map { |io| io == reader }.inspect
  ensure
    [reader, writer].compact.each(&:close)
  end

  def closes
    ours, theirs = UNIXSocket.pair
    owns(:closes, ours, theirs)
    Fiber.schedule { ours.close }
    again(:closes) { ours.gets }
  rescue IOError => error
    error.class.to_s
  ensure
    theirs&.close
  end

  def watcher
    ours, theirs = UNIXSocket.pair
    owns(:watcher, ours, theirs)
    queue = Thread::Queue.new
    again(:watcher) { Fiber.scheduler.on_ready(ours, IO::READABLE) { |events, _| queue << events } }
    again(:watcher) { theirs.write("x") }
    queue.pop.inspect
  ensure
    [ours, theirs].compact.each(&:close)
  end

  def offload
    Zlib.crc32(Fiber.scheduler.offload { Zlib::Deflate.deflate("x" * 1_000_000) }).to_s
  end

  TASKS = %i[stream tcp datagrams pipe terminal file uncached child names threads timers selects closes watcher offload].freeze
end

Program.new.run

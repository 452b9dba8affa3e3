# frozen_string_literal: true

# The program that main.rb runs under supervision, a process for each trial: what fibers do with sockets, pipes, files, terminals, children, names, threads
# and timers. A step that fails is reported and done again, so that at the end nothing is missing.
#
# It prints `task NUMBER NAME` for each task, `error TASK CLASS` for each failure, and `| …` for what must be the same in each run.
# Marks tell the supervisor to which task a descriptor belongs.
#
#   ruby tests/faults/program.rb                   once
#   ruby tests/faults/program.rb FOLDER TRIALS     as often; the n-th one writes to FOLDER/n.out and FOLDER/n.err

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

  def run(trial)
    TASKS.each_with_index { |name, number| say "task #{number} #{name}" }
    descriptors = leftovers
    Marks.begin(trial)
    round("first", TASKS)
    Marks.end
    round("again", TASKS - %i[names]) # afterwards everything works as before
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

  def round(title, tasks)
    @outcomes = {}
    scheduler = open
    Fiber.set_scheduler(scheduler)
    tasks.each { |name| start(name) }
    again(:run) { scheduler.run }
    say "| fibers left #{scheduler.live}"
    Fiber.set_scheduler(nil)
    @outcomes.sort.each { |name, outcome| say "| #{title} #{name} #{outcome.inspect}" }
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

  def report(name, error)
    say "error #{name} #{error.class}"
    say error.full_message(highlight: false) if ENV["REACTOR_LOUD"]
  end

  # A step that changes nothing if it fails.
  def again(name)
    tries = 0
    begin
      yield
    rescue SystemCallError, SocketError => error
      report(name, error)
      (tries += 1) < TRIES ? retry : raise
    end
  end

  def owns(name, *ios)
    ios.each { |io| Marks.own(io.fileno, TASKS.index(name)) }
  end

  # An IO is closed also if close(2) reports an error. Returns whether none has.
  def finish(name, *ios)
    closed = ios.compact.map do |io|
      io.close
      true
    rescue SystemCallError => error
      report(name, error)
      false
    end
    closed.all?
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
      finish(:stream, theirs)
      ended.close
    end
    answers = %w[a b c].map do |word|
      again(:stream) { ours.write("#{word}\n") }
      again(:stream) { ours.gets }
    end
    finish(:stream, ours)
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
    finish(:tcp, listener, socket)
  end

  # Each connection: a client that fails connects again.
  def greet(listener)
    loop do
      accepted = again(:tcp) { listener.accept }
      owns(:tcp, accepted)
      again(:tcp) { accepted.write("hello\n") }
      finish(:tcp, accepted)
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
    finish(:datagrams, ours, theirs)
  end

  # A socket that is waited for in one direction, and then in both.
  def duplex
    ours, theirs = UNIXSocket.pair
    owns(:duplex, ours, theirs)
    answer = Thread::Queue.new
    Fiber.schedule { answer << again(:duplex) { ours.gets } }
    nil until ours.write_nonblock("x" * 4096, exception: false) == :wait_writable
    Fiber.schedule do
      3.times { Fiber.scheduler.yield } # until the other fiber waits
      nil while theirs.read_nonblock(65_536, exception: false).is_a?(String)
      again(:duplex) { theirs.write("answer\n") }
    end
    again(:duplex) { ours.wait_writable }
    answer.pop
  ensure
    finish(:duplex, ours, theirs)
  end

  # Writes of a page each reach a full pipe wholly or not at all.
  def pipe
    reader, writer = IO.pipe
    writer.sync = true
    owns(:pipe, reader, writer)
    Fiber.schedule do
      24.times { |index| again(:pipe) { writer.write((65 + index).chr * 4096) } }
      finish(:pipe, writer)
    end
    sleep 0.001
    bytes = +""
    while (piece = again(:pipe) { part(reader) })
      bytes << piece
    end
    "#{bytes.size} #{Zlib.crc32(bytes)}"
  ensure
    finish(:pipe, reader, writer)
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
    finish(:terminal, ours, theirs)
  end

  def file
    text = "a line of it\n" * 30_000
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
      finish(:file, file)
      "#{head.inspect} #{whole.size} #{Zlib.crc32(whole)} #{small.inspect} #{copied}"
    end
  end

  def copy(file)
    reader, writer = IO.pipe
    owns(:file, reader, writer)
    Fiber.schedule do
      IO.copy_stream(file, writer, 5000, 0)
    rescue SystemCallError => error
      report(:file, error)
    ensure
      finish(:file, writer)
    end
    copied = again(:file) { reader.read }
    finish(:file, reader)
    copied.size == 5000 ? "copied" : copy(file)
  end

  # A file on tmpfs.
  def memory
    Tempfile.create("reactor-faults", "/dev/shm") do |file|
      owns(:memory, file)
      file.sync = true
      again(:memory) { file.rewind; file.write("m" * 5000) }
      again(:memory) { file.pwrite("MEMORY", 100) }
      part = again(:memory) { file.pread(10, 98) }
      whole = again(:memory) { file.rewind; file.read }
      finish(:memory, file)
      "#{part} #{whole.size} #{Zlib.crc32(whole)}"
    end
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
      finish(:uncached, file)
      "#{small.size} #{large.size}"
    end
  end

  # The children end when their parent already waits for them.
  def child
    pid = spawn("read line; exit 3", in: line_later)
    _, status = again(:child) { Process.wait2(pid) }
    pid = spawn("read line; exit 4", in: line_later)
    again(:child) { Process.wait(pid, Process::WUNTRACED) }
    "#{status.exitstatus} #{output_of_a_child}"
  end

  # What reads a line from it gets one when this fiber has waited. (Process.wait lets other fibers run before it waits.)
  def line_later
    reader, writer = IO.pipe
    Fiber.schedule do
      3.times { Fiber.scheduler.yield }
      reader.close
      writer.write_nonblock("\n")
      writer.close
    end
    reader
  end

  def output_of_a_child
    reader = IO.popen("echo output")
    pid = reader.pid
    owns(:child, reader)
    again(:child) { reader.gets }
  ensure
    # As in plain Ruby, a close that fails does not wait for the child.
    Process.wait(pid) unless finish(:child, reader)
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
    [slept.class, limited].inspect
  end

  # A file that epoll_ctl(2) refuses with EPERM is always ready for the library, and so is this socket then.
  def limit
    ours, theirs = UNIXSocket.pair
    owns(:limit, ours, theirs)
    again(:limit) { ours.wait_readable(0.001) } ? "ready" : "not ready"
  ensure
    finish(:limit, ours, theirs)
  end

  def limited_read
    ours, theirs = UNIXSocket.pair
    owns(:limited_read, ours, theirs)
    ours.timeout = 0.001
    again(:limited_read) { ours.readpartial(1) }
  rescue IO::TimeoutError => error
    error.class.to_s
  ensure
    finish(:limited_read, ours, theirs)
  end

  def selects
    reader, writer = IO.pipe
    owns(:selects, reader, writer)
    Fiber.schedule { again(:selects) { writer.write_nonblock("x") } }
    ready = again(:selects) { IO.select([reader], nil, nil, 5) }
    ready.first.map { |io| io == reader }.inspect
  ensure
    finish(:selects, reader, writer)
  end

  def closes
    ours, theirs = UNIXSocket.pair
    owns(:closes, ours, theirs)
    Fiber.schedule { ours.close }
    again(:closes) { ours.gets }
  rescue IOError => error
    error.class.to_s
  ensure
    finish(:closes, theirs)
  end

  def watcher
    ours, theirs = UNIXSocket.pair
    owns(:watcher, ours, theirs)
    queue = Thread::Queue.new
    again(:watcher) { Fiber.scheduler.on_ready(ours, IO::READABLE) { |events, _| queue << events } }
    again(:watcher) { theirs.write("x") }
    queue.pop.inspect
  ensure
    finish(:watcher, ours, theirs)
  end

  def offload
    Zlib.crc32(Fiber.scheduler.offload { Zlib::Deflate.deflate("x" * 100_000) }).to_s
  end

  TASKS = %i[
    stream tcp datagrams duplex pipe terminal file memory uncached child names threads timers limit limited_read selects closes
    watcher offload
  ].freeze
end

folder, trials = ARGV
Program.new.run(0) unless trials
trials.to_i.times do |number|
  child = fork do
    Process.setpgid(0, 0) # the supervisor kills all processes of a trial that hangs
    $stdout.reopen("#{folder}/#{number}.out", "w")
    $stderr.reopen("#{folder}/#{number}.err", "w")
    Program.new.run(number)
  end
  Process.wait(child)
end

# frozen_string_literal: true

require "socket"
require "stringio"
require "timeout"
require "tmpdir"
require "reactor/observe/snapshot_server"
require "reactor/testing"

# Cells of test_exhaustion.rb: an operation runs while a resource is exhausted, and again when it is available. A name is
# "where|resource|cold or warm|operation"; a warm operation has run once before.
module Exhaustion
  KEPT = [] # keeps open objects from being collected meanwhile

  module NoThread
    def new(...) = Exhaustion.no_threads ? raise(ThreadError, "can't create Thread: Resource temporarily unavailable") : super
    def start(...) = Exhaustion.no_threads ? raise(ThreadError, "can't create Thread: Resource temporarily unavailable") : super
    def fork(...) = Exhaustion.no_threads ? raise(ThreadError, "can't create Thread: Resource temporarily unavailable") : super
  end

  class << self
    attr_accessor :no_threads

    # Uses up all descriptors but a few.
    def descriptors(free)
      taken = KEPT.push([]).last
      loop { taken << File.open(File::NULL) }
    rescue Errno::EMFILE
      free.times { taken.pop.close }
      -> { taken.each(&:close) }
    end

    def threads
      self.no_threads = true
      -> { self.no_threads = false }
    end

    # Leaves no stack for more fibers than these. (The environment makes stacks so large that only a few fit in the address
    # space.)
    def fibers(free)
      limit = address_space(200_000_000)
      taken = KEPT.push([]).last
      KEPT << (spare = Fiber.new { loop { Fiber.yield } })
      spare.resume
      loop { taken << Fiber.new { Fiber.yield }.tap(&:resume) }
    rescue FiberError
      spare.resume # for the VM this fiber goes on resuming the one that has no stack, and nothing can switch to it
      free.times { taken.pop.resume }
      -> { limit.call; taken.each(&:resume) }
    end

    # @param bytes [Integer] what the process may still map
    def address_space(bytes)
      soft, hard = Process.getrlimit(:AS)
      Process.setrlimit(:AS, (File.read("/proc/self/status")[/VmSize:\s+(\d+)/, 1].to_i * 1024) + bytes, hard)
      -> { Process.setrlimit(:AS, soft, hard) }
    end
  end

  RESOURCES = {
    **(0..1).to_h { |free| ["#{free} descriptors", -> { descriptors(free) }] },
    "no threads" => -> { threads },
    **(0..1).to_h { |free| ["#{free} fibers", -> { fibers(free) }] },
    "no memory" => -> { address_space(40_000_000) }
  }.freeze

  class << self
    # A thread that acts each time the caller waits.
    def partner(&act)
      orders, main = Thread::Queue.new, Thread.current
      KEPT << Thread.new { Thread.pass until main.stop?.tap { |stopped| act.call if stopped } while orders.pop }
      -> { orders << true }
    end

    def pipe = IO.pipe.tap { |ends| KEPT << ends }

    def listener = TCPServer.new("127.0.0.1", 0).tap { |server| KEPT << server }

    # Children that end when the returned lambda is called.
    def child
      from, to = pipe
      pid = fork { Process.setrlimit(:CPU, 1); to.close; from.read(1); exit!(3) }
      [pid, partner { to.write("x") }]
    end

    def file(text = "text") = File.join(Dir.tmpdir, "exhausted-#{Process.pid}").tap { |path| File.write(path, text) && KEPT << path }
  end

  # Each prepares, and returns the operation. Those of plain Ruby also run on a thread without a scheduler.
  RUBY = {
    "wait_readable" => -> { from, to = pipe; act = partner { to.write("x") }; -> { act.call; from.wait_readable && from.read(1) } },
    "read" => -> { from, to = pipe; act = partner { to.write("x") }; -> { act.call; from.readpartial(1) } },
    "write" => -> { from, to = pipe; act = partner { from.read(70_000) }; -> { act.call; to.write("x" * 70_000) } },
    "IO.select" => -> { from, to = pipe; act = partner { to.write("x") }; -> { act.call; IO.select([from], nil, nil).flatten.size.tap { from.read(1) } } },
    "accept, waits" => lambda do
      server = listener
      sockets = Array.new(4) { Socket.new(:INET, :STREAM) }.each { |socket| KEPT << socket }
      act = partner { sockets.pop&.connect(server.local_address) }
      -> { act.call; server.accept.close }
    end,
    "connect to an address" => -> { server = listener; -> { TCPSocket.new("127.0.0.1", server.addr[1]).close } },
    "connect to a name" => -> { server = listener; -> { TCPSocket.new("localhost", server.addr[1]).close } },
    "Process.wait" => -> { children = Array.new(3) { child }; -> { pid, act = children.pop; act.call; Process.wait2(pid).last.exitstatus } },
    "Process.wait of any" => -> { children = Array.new(3) { child }; -> { _, act = children.pop; act.call; Process.wait2.last.exitstatus } },
    "system" => -> { -> { system("exit 2", exception: true) } },
    "backticks" => -> { -> { `echo out` } },
    "Timeout" => -> { -> { Timeout.timeout(0.001) { sleep } } },
    "File.read" => -> { path = file; -> { File.read(path) } },
    "a large File.read" => -> { path = file("x" * 50_000_000); -> { File.read(path).size } },
    "fsync" => -> { io = File.open(file, "r+").tap { |open| KEPT << open }; -> { io.write("x"); io.fsync } },
    "flock, waits" => lambda do
      path = file
      io, other = KEPT.push([File.open(path), File.open(path)]).last
      act = partner { other.flock(File::LOCK_UN) }
      -> { other.flock(File::LOCK_EX); act.call; [io.flock(File::LOCK_EX), io.flock(File::LOCK_UN)] }
    end,
    "copy_stream to a pipe" => -> { io = File.open(file).tap { |open| KEPT << open }; _, to = pipe; -> { io.rewind; IO.copy_stream(io, to) } },
    "copy_stream of pipes" => lambda do
      (from, to), (_, last) = pipe, pipe
      act = partner { to.write("text") }
      -> { act.call; IO.copy_stream(from, last, 4) }
    end,
    "a FIFO" => lambda do
      path = "#{Dir.mktmpdir}/f"
      File.mkfifo(path)
      KEPT << File.open(path, File::RDWR | File::NONBLOCK)
      -> { File.open(path, "w") { 1 } }
    end,
    "Queue#pop" => -> { queue = Thread::Queue.new; act = partner { queue << 1 }; -> { act.call; queue.pop } },
    "Mutex" => lambda do
      mutex, go, held = Thread::Mutex.new, Thread::Queue.new, Thread::Queue.new
      main = Thread.current
      KEPT << Thread.new { mutex.synchronize { held << 1; Thread.pass until main.stop? } while go.pop }
      -> { go << 1; held.pop; mutex.synchronize { 1 } }
    end,
    "Thread" => -> { -> { Thread.new { sleep 0.001; 1 }.value } },
    "Enumerator" => -> { -> { Enumerator.new { |y| sleep 0.001; y << 1 }.next } },
    "a large read" => -> { from, to = pipe; act = partner { to.write("x") }; -> { act.call; from.readpartial(50_000_000)[0] } },
    "IO::Buffer" => -> { from, to = pipe; act = partner { to.write("x") }; -> { act.call; from.wait_readable; IO::Buffer.new(50_000_000).read(from, 1).positive? } }
  }.freeze

  # Operations of this library.
  OURS = {
    "Fiber.schedule in a row" => -> { -> { Array.new(5) { Fiber.schedule { sleep 0.001 } }.size } },
    "offload of several" => -> { -> { Reactor.group { |group| group.map([1, 2, 3]) { |i| Reactor.offload { i } } } } },
    "group" => -> { -> { Reactor.group { |group| 3.times { |i| group.async { sleep 0.001; i } }; group.results } } },
    "on_ready" => lambda do
      from, to = pipe
      act = partner { to.write("x") }
      lambda do
        ended = Thread::Queue.new
        act.call
        watcher = Fiber.scheduler.on_ready(from) { ended << from.readpartial(1) }
        sleep 0.001 while watcher.waiting? # its fiber may have found no memory, which ends it
        watcher.ended == :ready ? ended.pop : raise(FiberError, watcher.ended.to_s)
      end
    end,
    "a new scheduler" => -> { -> { Reactor::Scheduler.new.close } },
    "a run in a thread" => -> { -> { Thread.new { Thread.current.report_on_exception = false; Reactor.run { sleep 0.001; 1 } }.value } },
    "a run with a stall limit" => -> { -> { Thread.new { Thread.current.report_on_exception = false; Reactor.run(stall: 60) { Reactor.offload { 1 } } }.value } },
    "virtual time" => -> { -> { Thread.new { Thread.current.report_on_exception = false; Reactor::Testing.virtual_time { |clock| sleep 1; clock.elapsed } }.value } },
    "dump" => -> { -> { [Fiber.scheduler.dump, Fiber.scheduler.stats, Fiber.scheduler.health, Reactor.dump(StringIO.new)].map(&:class) } },
    "observe" => lambda do
      Dir.mktmpdir.then { |folder| ENV["TMPDIR"] = folder }
      lambda do
        observer = Reactor.observe
        [observer.open?, UNIXSocket.open(observer.path) { |io| io.class }] # without a descriptor for accept there is no answer yet
      ensure
        observer&.close
      end
    end
  }.freeze

  class << self
    # A client makes a request, and its peer responds, before, while and after the listener cannot accept. What fails is the name
    # of a resource.
    def accepting(who, failing)
      sockets = Array.new(3) { who == "observer" ? Socket.new(:UNIX, :STREAM) : Socket.new(:INET, :STREAM) }
      address, stop = send(who)
      ask = lambda do |socket|
        socket.connect(address)
        socket.write("a\n") unless who == "observer"
      end
      answer = ->(socket) { socket.timeout = 4; socket.gets.to_s.match?(/\AA$|\A{/) }
      seen = { "before" => told { ask.call(sockets[0]); answer.call(sockets[0]) } }
      free = RESOURCES.fetch(failing).call
      ask.call(sockets[1])
      100.times { sleep 0 } # turns of the loop
      20.times { sleep 0.001 }
      free.call
      seen["during"] = told { answer.call(sockets[1]) }
      seen["after"] = told { ask.call(sockets[2]); answer.call(sockets[2]) } if seen["during"] == "true"
      seen
    ensure
      sockets.each(&:close)
      stop&.call
    end

    def server
      listening = listener
      server = Reactor::Server.new(listening, linger: 0) { |socket| socket.gets&.then { |line| socket.write(line.upcase) } }.start
      [listening.local_address, -> { server.stop(0) }]
    end

    def observer
      ENV["TMPDIR"] = Dir.mktmpdir
      observer = Reactor.observe
      [Addrinfo.unix(observer.path), -> { observer.close }]
    end

    def accepting_cell(who, failing)
      seen = nil
      Fiber.set_scheduler(scheduler = Reactor::Scheduler.new)
      Fiber.schedule { seen = accepting(who, failing) }
      run = told { scheduler.run }
      (seen || {}).merge("run" => run, "left" => [scheduler.live, scheduler.stats[:timers], scheduler.watchers.size])
    end

    def cell(name)
      where, resource, warmth, operation = name.split("|")
      Process.setrlimit(:NOFILE, 64, Process.getrlimit(:NOFILE).last)
      Thread.singleton_class.prepend(NoThread)
      Thread.report_on_exception = Thread.current.report_on_exception = false
      return accepting_cell(where, resource) unless operation

      where == "plain" ? plain(resource, warmth, operation) : in_a_fiber(resource, warmth, operation)
    end

    private

    def told
      value = yield
      value.inspect
    rescue Exception => error # rubocop:disable Lint/RescueException -- NoMemoryError
      error.class.name
    end

    def done(resource, warmth, call, seen)
      seen["before"] = told(&call) if warmth == "warm"
      free = RESOURCES.fetch(resource).call
      seen["during"] = told(&call)
      free.call
      seen["after"] = told(&call)
    end

    def plain(resource, warmth, operation)
      {}.tap { |seen| done(resource, warmth, RUBY.fetch(operation).call, seen) }
    end

    def in_a_fiber(resource, warmth, operation)
      seen, go = {}, Thread::Queue.new
      Fiber.set_scheduler(scheduler = Reactor::Scheduler.new)
      Fiber.schedule { go.pop; sleep 0.001; seen["bystander"] = "went on" }
      Fiber.schedule do
        done(resource, warmth, (RUBY[operation] || OURS.fetch(operation)).call, seen)
      ensure
        go << true
      end
      seen["run"] = told { scheduler.run }
      seen["left"] = [scheduler.live, scheduler.stats[:timers], scheduler.watchers.size]
      scheduler.close
      seen["another run"] = told { Reactor.run { sleep 0.001; 1 } }
      seen
    end
  end
end

# frozen_string_literal: true

require_relative "helper"
require "tempfile"
require "tmpdir"

# In a forked child of the scheduler's process, everything works as in plain Ruby on every backend.
class TestForkedChild < ReactorTest
  def setup
    super
    needs_fork
  end

  # No hook is called in a child, because it has no scheduler.
  def test_the_parents_scheduler_is_closed_and_its_hooks_that_wait_raise
    answer = in_fiber do |scheduler|
      from, = IO.pipe.each { |io| track(io) }
      hooks = {
        timeout_after: [0, IndexError], kernel_sleep: [0], block: [nil, 0], io_wait: [from, IO::READABLE, 0], io_select: [[from], nil, nil, 0],
        io_read: [from, IO::Buffer.new(1), 1, 0], address_resolve: ["localhost"]
      }
      told_by_child(lambda do
        raised = hooks.map { |name, arguments| (scheduler.public_send(name, *arguments) { nil }) rescue $!.class }
        scheduler.unblock(nil, Fiber.current)
        [scheduler.forked_child?, scheduler.closed?, Reactor::Schedulers.current, raised.uniq, scheduler.close, scheduler.run]
      end)
    end
    assert_equal [:value, [true, true, nil, [RuntimeError], nil, nil]], answer
  end

  # Keeps both ends for as long as the process lives. If they were garbage-collected, waits for the other ends would end early.
  def self.kept(ends) = (@kept ||= []).push(ends).last
  private_class_method :kept

  # What a child does without a scheduler, by name. Each returns or raises something comparable.
  ORDINARY = {
    "no scheduler" => -> { [Fiber.scheduler, Fiber.current_scheduler] },
    "sleep" => -> { [sleep(0.001), sleep(0)].map(&:class) },
    "Timeout" => -> { Timeout.timeout(0.002) { sleep } },
    "Timeout, a bare rescue" => -> { Timeout.timeout(0.002) { begin sleep; rescue; :swallowed end } },
    "Timeout, a rescue of Exception" => -> { Timeout.timeout(0.002) { begin sleep; rescue Exception => error; error.class end } },
    "Timeout, an explicit class" => -> { Timeout.timeout(0.002, Slow, "late") { begin sleep; rescue => error; [error.class, error.message] end } },
    "Timeout, an exception" => -> { Timeout.timeout(0.002, Strict) { begin sleep; rescue => error; error end } },
    "Timeout, nested" => -> { Timeout.timeout(0.002, Slow) { Timeout.timeout(60) { sleep } } },
    "Timeout of a read" => -> { Timeout.timeout(0.002) { kept(IO.pipe).first.read } },
    "Timeout of a child" => -> { Timeout.timeout(0.002) { Process.wait(spawn("sleep 0.2")) } },
    "IO#timeout" => -> { kept(IO.pipe).first.tap { |io| io.timeout = 0.002 }.read(1) },
    "IO#timeout of a write" => -> { kept(IO.pipe).last.tap { |io| io.timeout = 0.002 }.write("x" * 1_000_000) },
    "IO#wait_readable" => -> { kept(IO.pipe).first.wait_readable(0.001) },
    "IO#wait" => -> { kept(IO.pipe).last.wait(IO::WRITABLE, 1) },
    "IO.select" => -> { IO.select([kept(IO.pipe).first], nil, nil, 0.001) },
    "reads" => -> { IO.pipe.then { |from, to| to.write("abc\n"); to.close; [from.gets, from.read, from.read(1)] } },
    # When a signal interrupts its wait, plain Ruby 3.3's sysread raises EAGAIN, once in several thousand children.
    "sysread" => -> { IO.pipe.then { |from, to| Thread.new { to.write("x") }; from.wait_readable && from.sysread(1) } },
    "a close under a read" => lambda do
      reader, io = Thread.current, kept(IO.pipe).first
      Thread.new { Thread.pass until reader.stop?; io.close }
      io.read
    end,
    "IO::Buffer#read" => -> { IO.pipe.then { |from, to| to.write("x"); IO::Buffer.new(4).read(from, 1) } },
    "Queue#pop" => -> { [Thread::Queue.new.pop(timeout: 0.001), Thread::Queue.new.then { |queue| Thread.new { queue << 1 }; queue.pop }] },
    "a deadlock" => -> { Thread::Queue.new.pop },
    "Thread#join" => -> { [Thread.new { sleep }.join(0.001), Thread.new { 7 }.value] },
    "Mutex" => -> { Thread::Mutex.new.then { |mutex| mutex.synchronize { mutex.sleep(0.001).class } } },
    "ConditionVariable" => -> { Thread::Mutex.new.synchronize { 1 } && Thread::Mutex.new.then { |m| m.synchronize { Thread::ConditionVariable.new.wait(m, 0.001).class } } },
    "Process.wait" => -> { Process.wait(fork { exit!(3) }); $?.exitstatus },
    "a command" => -> { [`echo out`, system("exit 2"), $?.exitstatus] },
    "IO.popen" => -> { IO.popen("cat", "r+") { |io| io.write("x"); io.close_write; io.read } },
    "IO.popen of a fork" => -> { IO.popen("-") { |io| io ? io.read : print(Fiber.scheduler.inspect) } },
    "a nested fork" => lambda do
      from, to = IO.pipe
      late = -> { begin Timeout.timeout(0.002, Slow) { sleep }; rescue Slow; "slow" end }
      Process.wait(fork { Process.wait(fork { to.syswrite(late.call); exit!(0) }); exit!(0) })
      to.close
      from.read
    end,
    "Fiber.schedule" => -> { Fiber.schedule { nil } },
    "Fiber, Enumerator" => -> { [Fiber.new { sleep 0.001; 1 }.resume, Enumerator.new { |y| sleep 0.001; y << 2 }.next] },
    "a scheduler of its own" => lambda do
      Fiber.set_scheduler(Reactor::Scheduler.new)
      Fiber.schedule { sleep 0.001 }
      Fiber.scheduler.run
      Fiber.set_scheduler(nil)
    end,
    "a trap handler" => -> { [].tap { |seen| trap(:USR2) { seen << sleep(0.001).class }; Process.kill(:USR2, Process.pid); sleep 0.001 until seen.any? } },
    "a FIFO" => -> { Dir.mktmpdir { |d| File.mkfifo("#{d}/f"); Thread.new { File.write("#{d}/f", "x") }; File.open("#{d}/f", &:read) } },
    "a file" => lambda do
      Tempfile.create("child") do |file|
        [file.write("text"), file.fsync, file.fdatasync, file.pwrite("x", 0), file.flock(File::LOCK_EX), IO.copy_stream(file.path, File::NULL)]
      end
    end,
    "names" => -> { [Addrinfo.tcp("localhost", 80).ip_port, Socket.getaddrinfo("127.0.0.1", 80).size, IPSocket.getaddress("127.0.0.1")] },
    "a server by name" => -> { TCPServer.new("localhost", 0).then { |s| TCPSocket.new("localhost", s.addr[1]).peeraddr(:numeric)[1] == s.addr[1] } },
    "an unknown name" => -> { TCPSocket.new("nowhere.invalid", 1) },
    "a refused connection" => -> { TCPSocket.new("127.0.0.1", TCPServer.new("127.0.0.1", 0).then { |s| s.addr[1].tap { s.close } }) },
    "sockets" => lambda do
      one, other = UNIXSocket.pair
      [one.send("a", 0), one.sendmsg("b"), one.write_nonblock("c"), one.close_write, other.read, other.shutdown]
    end
  }.freeze
  Slow = Class.new(StandardError)
  Strict = Class.new(Exception) # rubocop:disable Lint/InheritException -- no rescue of StandardError catches it
  private_constant :Slow, :Strict

  # The message of a deadlock lists addresses, and a port is in that of a refused connection.
  def told
    [:value, yield]
  rescue Exception => error # rubocop:disable Lint/RescueException -- for the parent to see
    [:raised, error.class.name, error.message.lines.first.to_s.gsub(/\d{4,}/, "N").chomp]
  end

  def told_by_child(work)
    from, to = IO.pipe
    pid = fork do
      $stderr.reopen(File::NULL) # Timeout's own thread reports that it ends
      to.write(Marshal.dump(told { work.call }))
      exit!(0)
    end
    to.close
    answer = from.read
    Process.wait(pid)
    answer.empty? ? :died : Marshal.load(answer)
  ensure
    [from, to].each(&:close)
  end

  def test_a_child_of_a_fiber_does_everything_that_a_child_of_plain_ruby_does
    ORDINARY.each { |name, work| assert_as_plain(name) { told_by_child(work) } }
  end

  # A block-less fork: the rest of the fiber runs in the child.
  def test_a_child_of_a_fiber_ends_as_a_child_of_plain_ruby_does
    ends = ["exit 12", "raise 'reported'", "Process.kill(:TERM, Process.pid); sleep"]
    places = ["Fiber.new { work.call }.resume", "Reactor.run { work.call }",
              "Reactor.run { Reactor.group { |group| group.async { work.call } } }",
              "Reactor.run { to = IO.pipe.last; Fiber.scheduler.on_ready(to, IO::WRITABLE) { work.call } }",
              "Reactor.run { Reactor.offload { work.call } }"]
    expected, *got = places.map do |place|
      ends.map do |ending|
        child_says(<<~RUBY)
          work = lambda do
            pid = fork
            next p(Process.wait2(pid)[1].then { |status| [status.exitstatus, status.termsig] }) if pid

            $stderr.reopen(File::NULL)
            #{ending}
          end
          #{place}
        RUBY
      end
    end
    got.zip(places.drop(1)) { |statuses, place| assert_equal expected, statuses, place }
  end

  def test_an_error_that_a_server_would_pass_over_ends_a_child_of_its_block
    assert_equal "1\n", child_says(<<~RUBY)
      require "socket"
      Reactor.run do
        listener = TCPServer.new("127.0.0.1", 0)
        server = Reactor::Server.new(listener) do |connection|
          connection.readpartial(1)
          pid = fork or ($stderr.reopen(File::NULL); raise Errno::EPIPE)
          p Process.wait2(pid)[1].exitstatus
          false
        end.start
        TCPSocket.new("127.0.0.1", listener.local_address.ip_port).tap { |client| client.write("x"); client.read }
        server.stop
      end
    RUBY
  end
end

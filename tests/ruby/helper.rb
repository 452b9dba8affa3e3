# frozen_string_literal: true

# The base of all tests: a scheduler on its own thread, checked for leaks and with a time limit; child processes with a time
# limit; measurements. Environment:
#
#   REACTOR_BACKEND   the backend the whole suite runs on (default: the best one)
#   REACTOR_LONG=1    run tests at full length that are otherwise shortened
#   REACTOR_STRESS=1  run under GC.stress with automatic compaction, for the files listed in tests/runner/plan.rb
#   REACTOR_REPEAT=N  run each test N times, to find tests that fail by chance
#   REACTOR_RESULTS   a file that gets a line of JSON for each test

root = File.expand_path("../..", __dir__)
$LOAD_PATH.unshift(File.join(root, "lib")) unless $LOAD_PATH.include?(File.join(root, "lib"))

# A shell without job control starts background commands with SIGINT ignored, and child processes inherit that.
trap("INT", "DEFAULT")

# A warning about one of our files fails the run.
module OwnWarnings
  ROOT = File.expand_path("../..", __dir__)
  SEEN = []

  def warn(message, **)
    SEEN << message if message.include?("#{ROOT}/lib/") || message.include?("#{ROOT}/tests/")
    super
  end
end
Warning.extend(OwnWarnings)

# A plugin of another gem may need something that is not installed for this Ruby; Rails has one.
ENV["MT_NO_PLUGINS"] = "1"
require "minitest/autorun"
require "json"
require "socket"
require "timeout"
require "rbconfig"
require_relative "../inside"
require_relative "platform"
require_relative "stacks"
require_relative "time_limit"

class ReactorTest < Minitest::Test
  include Platform
  extend Platform::Libraries

  ROOT = OwnWarnings::ROOT
  LIB = File.join(ROOT, "lib")
  STRESS = ENV["REACTOR_STRESS"] == "1"
  LONG = ENV["REACTOR_LONG"] == "1"
  BACKEND = Reactor.backend
  # Argument order and meaning of io_read and io_write: 4 from Ruby 4.1 on.
  CONTRACT = defined?(IO::Buffer::VERSION) && IO::Buffer::VERSION >= 3 ? 4 : 3

  # The limit of every wait in a test, in seconds. Only a hang reaches it: it is extended while the test's processes have
  # something to run.
  TEST_TIMEOUT = STRESS ? 300 : 60

  class Hang < RuntimeError; end

  def run = super.tap { |result| record(result) if ENV["REACTOR_RESULTS"] }

  def record(result)
    line = { id: "#{self.class}##{name}", code: result.result_code, seconds: result.time.round(3) }
    line[:reason] = result.failure.message if result.skipped?
    File.write(ENV.fetch("REACTOR_RESULTS"), "#{line.to_json}\n", mode: "a")
  end

  def self.runnable_methods = super * Integer(ENV.fetch("REACTOR_REPEAT", 1))

  # IOs of hung tests. They stay open, because closing one would end the process while fibers still wait for it.
  ABANDONED = []

  def setup
    @ios = []
  end

  def teardown
    return ABANDONED.concat(@ios) if @hung

    # In Ruby 3.4 the finalizer of an abandoned Tempfile unlinks it during a later test, in whichever fiber triggers the
    # collection, and waits there.
    @ios.each do |io|
      if io.respond_to?(:close!) then io.close!
      elsif !io.closed? then io.close
      end
    end
  end

  # The IO is closed after the test (a Tempfile is also removed), and does not count as a leak until then.
  def track(io) = io.tap { @ios << io }

  def pipe = IO.pipe.each { |io| track(io).sync = true }.each { |io| io.binmode if windows? }

  def pair = UNIXSocket.pair.each { |io| track(io) }

  # For a TLS server on this machine: a self-signed certificate that clients may trust.
  def tls_context
    require "openssl"
    key = OpenSSL::PKey::EC.generate("prime256v1")
    certificate = OpenSSL::X509::Certificate.new
    certificate.version, certificate.serial = 2, 1
    certificate.subject = certificate.issuer = OpenSSL::X509::Name.parse("/CN=localhost")
    certificate.public_key = key
    certificate.not_before, certificate.not_after = Time.utc(2000), Time.utc(2049)
    extensions = OpenSSL::X509::ExtensionFactory.new(certificate, certificate)
    certificate.add_extension(extensions.create_extension("subjectAltName", "DNS:localhost,IP:127.0.0.1"))
    certificate.add_extension(extensions.create_extension("basicConstraints", "CA:TRUE", true))
    certificate.sign(key, OpenSSL::Digest.new("SHA256"))
    OpenSSL::SSL::SSLContext.new.tap { |context| context.cert, context.key = certificate, key }
  end

  # Runs the block on a new thread with a scheduler, and returns its value or raises its error. Afterwards the thread, its
  # fibers and its descriptors must be gone. The options are those of the scheduler.
  def run_scheduler(backend = nil, within: TEST_TIMEOUT, **options)
    before = descriptors
    threads = Thread.list
    scheduler = nil
    thread = Thread.new do
      Thread.current.report_on_exception = false
      scheduler = Reactor::Scheduler.new(**options, **(backend ? { backend: backend } : {}))
      Fiber.set_scheduler(scheduler)
      under_stress { yield scheduler }
    end
    join_or_fail(thread, within)
    begin
      value = thread.value
    rescue Minitest::Assertion
      raise # the failed assertion hides no leak message
    rescue Exception # rubocop:disable Lint/RescueException -- a test may expect it, and the leak check applies as well
      check_nothing_left(scheduler, before, threads)
      raise
    end
    check_nothing_left(scheduler, before, threads)
    value
  end

  # The value of the block, which runs in a fiber of a new scheduler; returned when all its fibers have ended. The block gets
  # the scheduler.
  def in_fiber(*backend, **options)
    value = nil
    run_scheduler(*backend, **options) { |scheduler| Fiber.schedule { value = yield(scheduler) } }
    value
  end

  # Runs the block as plain Ruby: on a thread without a scheduler.
  def run_plain(within: TEST_TIMEOUT, &block)
    thread = Thread.new { Thread.current.report_on_exception = false; block.call }
    join_or_fail(thread, within)
    thread.value
  end

  def join_or_fail(thread, within)
    limit = TimeLimit.new(within)
    finished = begin
      limit.until { thread.join(limit.remaining) }
    rescue Exception # rubocop:disable Lint/RescueException -- thread.value raises it again
      raise if thread.alive? # a signal

      true
    end
    return if finished

    dump = "#{all_backtraces}\n#{Stacks.of_tree(Process.pid)}"
    thread.kill
    thread.join(2)
    @hung = true
    raise Hang, "nothing finished within #{within} s\n#{dump}"
  end

  def all_backtraces
    threads = Thread.list.map { |t| "#{t.inspect}\n    #{(t.backtrace || ["(no Ruby frame)"]).first(12).join("\n    ")}" }
    fibers = ObjectSpace.each_object(Fiber).select(&:alive?).first(20).filter_map do |fiber|
      trace = fiber.backtrace
      "#{fiber.inspect}\n    #{trace.first(8).join("\n    ")}" if trace && !trace.empty?
    end
    (threads + fibers).join("\n")
  end

  def check_nothing_left(scheduler, before, threads)
    if scheduler
      assert_predicate scheduler, :closed?, "the scheduler of a finished thread is closed"
      assert_equal 0, scheduler.live, "live fibers left"
    end
    eventually { leaked_descriptors(before).empty? } # a thread of the pool holds one until it has ended
    assert_equal [], leaked_descriptors(before), "descriptors left open"
    assert eventually { surplus_threads(threads).empty? }, -> { "threads left: #{surplus_threads(threads).inspect}" }
  end

  def surplus_threads(before)
    (Thread.list - before).reject { |t| t.name.to_s.include?("Timeout") }
  end

  # [[number, target], …]; empty if the system has no /proc.
  def descriptors
    return [] unless linux?

    Dir.children("/proc/self/fd").filter_map { |fd| [fd, File.readlink("/proc/self/fd/#{fd}")] rescue nil }
  end

  # Descriptors opened since then. Finalizers of earlier tests may not have run yet, so a leak counts only after a garbage
  # collection.
  def leaked_descriptors(before)
    return [] if surplus_descriptors(before).empty?

    GC.start
    surplus_descriptors(before)
  end

  def surplus_descriptors(before)
    ours = @ios.reject(&:closed?).map { |io| io.fileno.to_s }
    (descriptors - before).reject { |number, _| ours.include?(number) }
  end

  def under_stress
    return yield unless STRESS

    begin
      GC.auto_compact = true
      GC.stress = true
      yield
    ensure
      GC.stress = false
      GC.auto_compact = false
    end
  end

  # Milliseconds, for spans of which only the order matters. They are 30 times as long under GC.stress, where nothing takes less
  # than a millisecond.
  def ms(count) = count * (STRESS ? 0.03 : 0.001)

  def skip_under_stress = (skip "too many allocations for GC.stress" if STRESS)

  def clock = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def elapsed
    start = clock
    yield
    clock - start
  end

  def compute(seconds)
    limit = clock + seconds
    nil until clock > limit
  end

  # A wait that only something else ends.
  def never = Thread::Queue.new.pop

  # Runs the block in a fiber, in virtual time: a limit elapses only when no fiber can run, however slow the machine is.
  def run_in_virtual_time(&block) = run_plain { under_stress { Reactor::Testing.virtual_time(&block) } }

  # Returns once the thread waits: in a queue, a lock, a sleep, a join or for a descriptor.
  def until_asleep(thread)
    assert eventually { thread.stop? }, "#{thread.inspect} never slept"
    thread
  end

  # Returns once `count` fibers of the scheduler are parked. Call it in another fiber of the scheduler or on another thread.
  def until_parked(scheduler, count)
    assert eventually { scheduler.stats[:parked] >= count }, "never #{count} parked: #{scheduler.stats[:parked]}"
  end

  # Calls the block until it returns something true or the time limit is reached, and returns its last value. The limit is this
  # process's, or another one's.
  def eventually(seconds = TEST_TIMEOUT, pid = Process.pid)
    TimeLimit.new(seconds, pid).until { yield || (sleep 0.005; nil) }
  end

  # [:value, v] or [:raised, Class], to compare plain Ruby with the scheduler.
  def outcome
    [:value, yield]
  rescue Exception => e # rubocop:disable Lint/RescueException
    [:raised, e.class]
  end

  # The value, or the class and the message of the error.
  def told
    yield
  rescue StandardError => error
    [error.class, error.message]
  end

  # A fiber stands for a thread of plain Ruby.
  def assert_as_plain(message = nil, &block) = assert_equal(run_plain(&block), in_fiber { block.call }, message)

  # Compares data too long to print.
  def assert_bytes(expected, got, message = "")
    assert_kind_of String, got, message
    return pass if expected.b == got.b

    first = (0...expected.bytesize).find { |i| expected.getbyte(i) != got.getbyte(i) }
    flunk "#{message} #{got.bytesize} bytes instead of #{expected.bytesize}, different from byte #{first || expected.bytesize} on".lstrip
  end

  def linux? = RUBY_PLATFORM.include?("linux")

  def needs_linux(what) = (skip "#{what}: Linux only" unless linux?)

  def needs_fork = (skip "no fork on this platform" unless Process.respond_to?(:fork))

  # A lambda that blocks its callers, fibers or threads, until `count` of them have called it.
  def gate(count)
    come = Thread::Queue.new
    open = Thread::Queue.new
    lambda do
      come << true
      open.close if come.size >= count
      open.pop
    end
  end

  # Calls the buffer hook with this Ruby's argument order.
  def hook_read(scheduler, io, buffer, length, offset = 0)
    CONTRACT == 4 ? scheduler.io_read(io, buffer, offset, length) : scheduler.io_read(io, buffer, length, offset)
  end

  def hook_write(scheduler, io, buffer, length, offset = 0)
    CONTRACT == 4 ? scheduler.io_write(io, buffer, offset, length) : scheduler.io_write(io, buffer, length, offset)
  end

  # A buffer for the hooks, without Ruby's warning that IO::Buffer is experimental.
  def buffer_of(text_or_size)
    quietly { text_or_size.is_a?(String) ? IO::Buffer.for(text_or_size) : IO::Buffer.new(text_or_size) }
  end

  # Stacks are so large that a few of them fill the address space.
  SCARCE = { "RUBY_FIBER_MACHINE_STACK_SIZE" => (1 << 26).to_s }.freeze
  LIMIT = 'limit = ->(bytes) { Process.setrlimit(:AS, File.read("/proc/self/status")[/VmSize:\s+(\d+)/, 1].to_i * 1024 + bytes, Process.getrlimit(:AS).last) }'

  def run_without_memory(code)
    skip "no /proc to learn the size of the process from" unless File.exist?("/proc/self/status")
    child = run_child("#{LIMIT}\n#{code}", env: SCARCE)
    assert_equal "", child.err
    child.out
  end

  def quietly
    before = Warning[:experimental]
    Warning[:experimental] = false
    yield
  ensure
    Warning[:experimental] = before
  end

  def tcp_pair
    server = TCPServer.new("127.0.0.1", 0)
    client = TCPSocket.new("127.0.0.1", server.addr[1])
    [track(client), track(server.accept)]
  ensure
    server&.close
  end

  def listener = track(TCPServer.new("127.0.0.1", 0))

  # Fills an IO until it would block. Returns the number of bytes written.
  def fill(io)
    total = 0
    chunk = "x" * 65_536
    loop do
      n = io.write_nonblock(chunk, exception: false)
      return total if n == :wait_writable

      total += n
    end
  end

  # With io_write, Ruby writes a line and its line end in two calls, so another process's line may come between.
  WHOLE_LINES = '$stdout.sync = true; def puts(*lines) = $stdout.write(lines.flatten.map { |line| "#{line.to_s.delete_suffix("\n")}\n" }.join).then { nil }'

  Child = Struct.new(:out, :err, :status, :seconds)

  # Runs Ruby code in a child process with this library loaded. The block, if any, gets the process id and a lambda that waits
  # for a line of the child's standard output. A child that does not end in time is killed and fails the test. Loading RubyGems
  # takes half of a child's start-up time, so only children that need a gem load it.
  def run_child(code, *arguments, env: {}, within: TEST_TIMEOUT, gems: false, options: {})
    code, *arguments = [code, *arguments].map { |text| text.to_s.gsub(/USR[12]/, SIGNAL.name) } if windows?
    out_r, out_w = IO.pipe
    err_r, err_w = IO.pipe
    start = clock
    own = { "REACTOR_BACKEND" => BACKEND.to_s, "REACTOR_STRESS" => nil, "REACTOR_RESULTS" => nil, "REACTOR_REPEAT" => nil }
    pid = Process.spawn(own.merge(env), RbConfig.ruby, *("--disable-gems" unless gems), "-w", "-I", LIB,
                        "-r", "reactor", "-e", "#{PRELUDE}#{WHOLE_LINES}\n#{code}", *arguments.map(&:to_s),
                        out: out_w, err: err_w, in: File::NULL, **OWN_GROUP, **options)
    out_w.close
    err_w.close
    err = Thread.new { err_r.read }
    head = +""
    yield pid, ->(line) { until_line(pid, out_r, head, line, within) } if block_given?
    out = Thread.new { out_r.read }
    status = reap(pid, within)
    seconds = clock - start
    Child.new(head + out.value, err.value, status, seconds)
  ensure
    [out_r, out_w, err_r, err_w].each { |io| io&.close unless io&.closed? }
  end

  def until_line(pid, io, head, line, within)
    limit = TimeLimit.new(within, pid)
    until head.include?("#{line}\n")
      raise Hang, "the child said #{head.inspect}, never #{line.inspect}" if limit.over? && !io.wait_readable(0)
      next unless io.wait_readable(limit.remaining)

      head << (io.read_nonblock(4096, exception: false) || (raise Hang, "the child ended after #{head.inspect}, before #{line.inspect}"))
    end
  end

  def reap(pid, within)
    _, status = eventually(within, pid) { Process.waitpid2(pid, Process::WNOHANG) }
    return status if status

    stacks = Stacks.of_tree(pid)
    kill(pid)
    Process.waitpid(pid)
    raise Hang, "the child did not end within #{within} s\n#{stacks}"
  end

  # Kills a child of {#run_child} or {#run_example} and its own children. (On Windows only the child itself.)
  def kill(pid) = Process.kill(:KILL, windows? ? pid : -pid)

  # Runs an example in its own process until the signal ends it or it exits. The block gets the first line that the example
  # prints, and returns when the example is to be ended.
  #
  # @return [Array(Integer, String)] its exit status, and the rest of its output
  def run_example(*command, signal: nil)
    reader, writer = IO.pipe
    pid = Process.spawn({ "REACTOR_BACKEND" => BACKEND.to_s }, RbConfig.ruby, "-w", "-I", LIB, *command.map(&:to_s),
                        chdir: ROOT, out: writer, err: writer, **OWN_GROUP)
    writer.close
    yield Timeout.timeout(TEST_TIMEOUT) { reader.gets }, pid if block_given?
    Process.kill(signal, pid) if signal
    status = reap(pid, TEST_TIMEOUT)
    pid = nil
    [status.exitstatus, reader.read]
  ensure
    kill(pid) && Process.wait(pid) if pid
    reader&.close
  end

  # Runs a child that must succeed with nothing on stderr. Returns its standard output.
  def child_says(code, *arguments, **options, &block)
    child = run_child(code, *arguments, **options, &block)
    assert_equal "", child.err
    assert_predicate child.status, :success?, "#{child.status.inspect}: #{child.out}"
    child.out
  end
end

# With M:N threads, any program on Ruby 4.0.5 may crash after its last line (10 of 60 runs of one that only starts threads): the VM frees
# stacks to which its native threads still switch (`nt_start`). So the process ends without the VM.
if ENV["RUBY_MN_THREADS"] == "1"
  passed = nil
  Minitest.singleton_class.prepend(Module.new { define_method(:run) { |*arguments| passed = super(*arguments) } })
  Minitest.after_run { $stdout.flush; Process.exit!(passed) }
end

Minitest.after_run do
  unless OwnWarnings::SEEN.empty?
    puts "warnings from our own files:", OwnWarnings::SEEN.uniq
    exit 1
  end
end

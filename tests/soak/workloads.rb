# frozen_string_literal: true

require "logger"
require "socket"
require "timeout"

require "reactor/rack"
require_relative "../../bench/support"
require_relative "../../bench/harness/workload"
require_relative "../../bench/workloads/sockets"
require_relative "../ruby/platform"
extend Platform::Libraries

optional "openssl"

# The workloads of a soak. Each method is one round, checks its own results, and leaves nothing behind.
class Workloads
  CONTEXT = (Bench::TLS.server if defined?(OpenSSL))

  # A result of a round is wrong.
  class Wrong < StandardError; end

  KNOWN = [:echo, *(:tls if CONTEXT), :queue, :timeout, :process, :thread, :rest, :rack, :collect].freeze
  ALL = (ENV["ONLY"] ? KNOWN & ENV["ONLY"].split(",").map(&:to_sym) : KNOWN).freeze

  # @param account [Account]
  # @param seed [Integer]
  # @param queue [Queue] that this thread reads
  # @param next_queue [Queue] that another thread reads
  def initialize(account, seed, queue, next_queue)
    @account = account
    @random = Random.new(seed)
    @queue, @next_queue = queue, next_queue
  end

  # A TCP connection with data in both directions at once; the server closes it.
  def echo
    server = TCPServer.new("127.0.0.1", 0)
    Fiber.schedule do
      peer = server.accept
      peer.write(peer.read)
      peer.close
    end
    client = TCPSocket.new("127.0.0.1", server.addr[1])
    exchange(client, client) { client.close_write }
  ensure
    [server, client].each { |io| io&.close }
  end

  def tls
    near, far = UNIXSocket.pair
    server = OpenSSL::SSL::SSLSocket.new(far, CONTEXT)
    client = OpenSSL::SSL::SSLSocket.new(near)
    Fiber.schedule do
      server.accept
      server.write(server.readpartial(16_384)) while true
    rescue EOFError
      server.close
    ensure
      far.close
    end
    client.connect
    bytes = @random.bytes(1 + @random.rand(16_000))
    client.write(bytes)
    check(client.read(bytes.bytesize) == bytes, "TLS gave other bytes")
    @account.bytes += bytes.bytesize
    client.close
  ensure
    near.close
  end

  # Items pass from thread to thread.
  def queue
    @next_queue << @random.rand(100).tap { |number| @account.sent += number }
    number = @queue.pop(timeout: 0.01) || 0
    @account.received += number # `+=` must not span a wait
  end

  def timeout
    limit = 0.0001 + @random.rand * 0.003
    start = Account.now
    begin
      Timeout.timeout(limit) { [-> { sleep }, -> { Queue.new.pop }, -> { with_pipe { |reader, _| reader.read } }].sample(random: @random).call }
      wrong "a timeout never came"
    rescue Timeout::Error
      check(Account.now - start >= limit, "a timeout came early")
    end
    Timeout.timeout(60) { sleep 0 }
  end

  def process
    code = @random.rand(100)
    pid = spawn("exit #{code}")
    begin
      Timeout.timeout(@random.rand * 0.003) { Process.wait(pid) }
    rescue Timeout::Error
      Process.wait(pid)
    end
    check($?.pid == pid && $?.exitstatus == code, "a child's status is #{$?.inspect}, not #{code}")
    check(IO.popen(%w[echo word], &:read) == "word\n", "a child said something else")
  end

  # A short-lived scheduler, which another thread may kill.
  def thread
    log = []
    ended = []
    inner = Thread.new do
      Fiber.set_scheduler(Reactor::Scheduler.new)
      5.times { |i| Fiber.schedule { sleep 0.0005 * i; log << i } }
      Fiber.schedule { begin sleep(0.01) ensure ended << true end }
    end
    killed = @random.rand(3).zero?
    inner.kill if killed
    inner.join
    check(killed || (log.sort == [0, 1, 2, 3, 4] && ended == [true]), "a short-lived scheduler did #{log}")
  end

  # Connections that rest without a fiber: they get bytes, are closed by either side, are cancelled, or their time is up.
  def rest
    ends = Array.new(1 + @random.rand(50)) { UNIXSocket.pair }
    ran = 0
    limit = @random.rand * 0.02
    watchers = ends.map { |near, _| Fiber.scheduler.on_ready(near, timeout: limit) { ran += 1 } }
    fates = ends.zip(watchers).map { |(near, far), watcher| end_rest(near, far, watcher) }
    sleep 0.001 while watchers.any?(&:waiting?)
    check(fates.zip(watchers).all? { |fate, watcher| [fate, :timeout].include?(watcher.ended) }, "watchers have ended as #{watchers.map(&:ended)} instead of #{fates}")
    check(ran == watchers.count { |watcher| %i[ready timeout].include?(watcher.ended) }, "#{ran} blocks of watchers ran")
  ensure
    ends.flatten.each(&:close)
  end

  # A Rack server with clients that ask well, and some that break off, send nonsense or do not read; it ends under them.
  def rack
    listener = TCPServer.new("127.0.0.1", 0)
    app = ->(env) { [200, {}, env["PATH_INFO"] == "/big" ? Array.new(20) { "x" * 10_000 }.each : [env["rack.input"].read]] }
    good, bad = @random.rand(5), 1 + @random.rand(5)
    limit = good.zero? ? 0.02 : 30 # seconds: a burst of GC.stress must not end a good request
    server = Reactor::Rack.new(app, logger: Logger.new(nil), header_timeout: limit, body_timeout: limit, write_timeout: limit).serve(listener)
    port = listener.addr[1]
    done = Queue.new
    good.times { |index| Fiber.schedule { ask_well(port, index, done) } }
    bad.times { Fiber.schedule { ask_badly(port) } }
    answered = Array.new(good) { done.pop }
    server.stop(@random.rand * 0.05)
    check(answered.all?, "requests without their answer: #{answered}")
  end

  # On Windows Ruby itself ends when a fiber compacts (docs/backends.md).
  COMPACTS = GC.respond_to?(:compact) && !Platform::WINDOWS

  def collect
    @random.rand(2).zero? && COMPACTS ? GC.compact : GC.start
    sleep 1 + 2 * @random.rand
  end

  private

  NONSENSE = ["", "GET", "GET / HTTP/1.1\r\n", "\0\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc",
              "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc", "GET /big HTTP/1.1\r\nHost: a\r\n\r\n" * 50].freeze

  def ask_well(port, index, done)
    body = @random.bytes(1 + @random.rand(20_000))
    socket = TCPSocket.new("127.0.0.1", port)
    head = "POST /#{index} HTTP/1.1\r\nHost: a\r\nContent-Length: #{body.bytesize}\r\n"
    2.times { socket.write("#{head}\r\n", body) }
    socket.write("#{head}Connection: close\r\n\r\n", body)
    got = socket.read
    @account.bytes += body.bytesize * 3
    done << (got.scan("HTTP/1.1 200 OK").size == 3 && got.end_with?(body))
  ensure
    socket&.close
  end

  def ask_badly(port)
    socket = TCPSocket.new("127.0.0.1", port)
    socket.write(NONSENSE.sample(random: @random))
    sleep(@random.rand * 0.1)
    socket.read_nonblock(10, exception: false)
  rescue SystemCallError, IOError
    nil # the server has ended
  ensure
    socket&.close
  end

  # @return [Symbol] why the watcher ends, unless its time is up before
  def end_rest(near, far, watcher)
    case @random.rand(5)
    when 0 then far.write("x") && :ready
    when 1 then far.close || :ready
    when 2 then near.close || :closed
    when 3 then watcher.cancel ? :cancelled : :timeout
    else :timeout
    end
  end

  # Writes in one fiber, which then calls the block, and reads in this one.
  def exchange(writer, reader)
    bytes = @random.bytes(@random.rand(10).zero? ? 300_000 : 1 + @random.rand(5_000))
    Fiber.schedule { writer.write(bytes); yield }
    got = reader.read
    check(got == bytes, "#{got.bytesize} bytes instead of #{bytes.bytesize}, or wrong ones")
    @account.bytes += bytes.bytesize
  end

  def with_pipe
    ends = IO.pipe
    yield(*ends)
  ensure
    ends.each(&:close)
  end

  def check(correct, message) = (wrong(message) unless correct)

  def wrong(message) = raise(Wrong, message)
end

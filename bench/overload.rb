# frozen_string_literal: true

# bin/bench overload: requests that come at a fixed rate, however long the answers take, to an application that computes for 1 ms and waits
# for 5 ms; below its capacity, at twice and at ten times that, with `overload:` and without. docs/servers.md has the table.
#
#   bin/bench overload [SECONDS [OVERLOAD]]    of each measurement (5), of `overload:` (0.02)

require "reactor"
require "reactor/rack"
require "socket"

module OverloadBench
  RATES = [400, 800, 1_600, 8_000].freeze
  CONNECTIONS = 4_000
  REQUEST = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

  APP = lambda do |_|
    ended = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + 0.001
    nil while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < ended
    sleep 0.005
    [200, { "content-length" => "2" }, ["ok"]]
  end

  # What came back after the first second: for each answer its status and how long it took, from when the request was due.
  class Load
    def initialize(port, rate, seconds)
      @port, @rate, @seconds = port, rate, seconds
      @free, @open, @answers, @failed = [], 0, [], 0
    end

    attr_reader :answers, :failed

    def run
      began = now
      Reactor.run do
        (@rate * (@seconds + 1)).to_i.times do |index|
          due = began + index.fdiv(@rate)
          left = due - now
          sleep left if left.positive?
          Fiber.schedule { ask(due, index >= @rate) }
        end
      end
      self
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def ask(due, counts)
      socket = @free.pop || connect or return (@failed += 1 if counts)
      socket.write(REQUEST)
      head = socket.readpartial(4096)
      @answers << [head[9, 3].to_i, now - due] if counts
      @free << socket
    rescue SystemCallError, EOFError, IOError
      @failed += 1 if counts
      @open -= 1
    end

    def connect
      return if @open >= CONNECTIONS

      @open += 1
      TCPSocket.new("127.0.0.1", @port)
    end
  end

  class << self
    def run(seconds, overload)
      puts "| requests a second | `overload:` | served a second | 503 a second | failed | p50 | p99 of those served |", "|---:|---|---:|---:|---:|---:|---:|"
      [nil, overload].each { |limit| RATES.each { |rate| puts row(rate, limit, seconds) } }
      puts "Ruby #{RUBY_VERSION}, #{Reactor.backend}, load #{File.read("/proc/loadavg").to_f} at the end"
    end

    private

    # The server has one processor, the load another.
    def row(rate, limit, seconds)
      listener = TCPServer.new("127.0.0.1", 0)
      listener.listen(4096)
      server = fork do
        pin(0)
        Reactor.run { Reactor::Rack.new(APP, overload: limit).serve(listener) }
      end
      pin(1)
      load = Load.new(listener.addr[1], rate, seconds).run
      served = load.answers.filter_map { |status, took| took if status == 200 }.sort
      format("| %d | %s | %.0f | %.0f | %d | %.1f ms | %.1f ms |", rate, limit || "-", served.size / seconds, (load.answers.size - served.size) / seconds, load.failed,
             served[served.size / 2] * 1000, served[(served.size * 0.99).to_i] * 1000)
    ensure
      Process.kill(:KILL, server)
      Process.wait(server)
      listener.close
    end

    def pin(core) = system("taskset", "-p", "-c", core.to_s, Process.pid.to_s, out: File::NULL)
  end
end

OverloadBench.run(Float(ARGV.fetch(0, "5")), Float(ARGV.fetch(1, "0.02"))) if $PROGRAM_NAME == __FILE__

# frozen_string_literal: true

# What services do: requests of Net::HTTP, pools, work in parallel, time limits that expire, and clients outside the process.
# pool, fan_out, database and cut_short, with http_api and http_download, are carbon_fiber's workloads, written anew from their descriptions;
# its other two are tcp_echo and http_keep.
require "net/http"
require "rbconfig"
require "timeout"
require_relative "../../examples/http_server"

module Bench
  # 20 tasks that fetch one page again and again, each over its own connection, from a server among them.
  FETCHES = lambda do |run, bytes|
    server = HTTPServer.new(0, bytes)
    run.spawn { server.each_connection { |socket| run.spawn { server.serve(socket) } } }
    clients = Array.new(20) { Net::HTTP.start("127.0.0.1", server.port) }
    run.share_measured(clients) do |client, part|
      part.times do
        got = 0
        client.request_get("/") { |answer| answer.read_body { |piece| got += piece.bytesize } }
        run.check(got, bytes, "bytes of a body")
      end
    end
  end

  Workload.define(
    "http_api", title: "Net::HTTP, small answers", unit: "requests/s", operations: 6_000, least: 20,
    about: "20 tasks with a kept connection each ask a server in the same scheduler for 100 bytes"
  ) { |run| FETCHES.call(run, 100) }

  Workload.define(
    "http_download", title: "Net::HTTP, bodies of 256 kB", unit: "downloads/s", operations: 2_000, least: 20,
    about: "the same with 262,144 bytes, read in pieces"
  ) { |run| FETCHES.call(run, 262_144) }

  # CPU microseconds per operation: these workloads sleep, so that all schedulers have nearly the same rate.
  CPU = ->(sample) { sample[:cpu] / sample[:operations] * 1e6 }

  # A sleep that is checked: with RUBY_MN_THREADS=1, Ruby's own may end at once.
  NAP = lambda do |run, seconds|
    began = Usage.clock(Process::CLOCK_MONOTONIC)
    sleep seconds
    run.check(Usage.clock(Process::CLOCK_MONOTONIC) - began >= seconds, true, "whether a sleep of #{seconds} s took so long")
  end

  # A pool of 5, as a queue; the block has one of them.
  POOL = lambda do
    pool = Thread::Queue.new(1..5)
    lambda do |&block|
      member = pool.pop
      block.call
    ensure
      pool << member if member
    end
  end

  Workload.define(
    "pool", title: "50 tasks share a pool of 5", unit: "us CPU", value: CPU, better: :less, operations: 5_000, least: 50,
    about: "each checks a member of the pool out and keeps it for a sleep of 1 ms"
  ) do |run|
    pool = POOL.call
    run.share_measured(Array.new(50)) { |_, part| part.times { pool.call { NAP.call(run, 0.001) } } }
  end

  Workload.define(
    "fan_out", title: "10 tasks at once, and their results", unit: "us CPU", value: CPU, better: :less, operations: 1_000,
    about: "a task starts 10 others, which sleep 1 to 3 ms, and waits for all of them; 10 such tasks"
  ) do |run|
    run.share_measured(Array.new(10)) do |_, part|
      part.times do
        results = Thread::Queue.new
        10.times { |index| run.spawn { NAP.call(run, ((index % 3) + 1) / 1000.0); results << index } }
        run.check(Array.new(10) { results.pop }.sum, 45, "the sum of all results")
      end
    end
  end

  Workload.define(
    "database", title: "A page with 3 to 5 queries", unit: "us CPU", value: CPU, better: :less, operations: 2_000, least: 20,
    about: "20 tasks check one of 5 connections out, wait 3 to 5 times for .5 to 1.5 ms, and give it back"
  ) do |run|
    pool = POOL.call
    run.share_measured(Array.new(20) { |index| index }) do |index, part|
      part.times do |turn|
        pool.call { (3 + (turn % 3)).times { |query| NAP.call(run, ((index + query) % 3 + 1) / 2000.0) } }
      end
    end
  end

  Workload.define(
    "cut_short", title: "Time limits, of which 3 in 10 expire", unit: "us CPU", value: CPU, better: :less, operations: 5_000, least: 20,
    about: "20 tasks: Timeout.timeout(0.005) around a sleep of 1 ms, 7 in 10 times, or 20 ms"
  ) do |run|
    run.share_measured(Array.new(20)) do |_, part|
      part.times do |turn|
        Timeout.timeout(0.005) { NAP.call(run, turn % 10 < 7 ? 0.001 : 0.02) }
      rescue Timeout::Error
        nil
      end
    end
  end

  # A client in a process of its own, at the other end of a connection. It waits between an answer and its next request.
  class OneClient
    PROGRAM = "io, count, pause = IO.for_fd(3), *ARGV.map(&:to_i); " \
              "count.times { sleep(pause / 1e6) if pause > 0; io.syswrite('x'); io.readpartial(1) }"

    # @param pair [Proc] makes a new connection, both ends
    def initialize(run, pair)
      @run = run
      @pair = pair
    end

    def measure
      @run.measure(prepare: ->(count) { start(count) }) do |count, near|
        count.times { near.write(near.readpartial(1)) }
        near.close
      end
    end

    private

    # The measured section begins with the first request.
    def start(count)
      near, far = @pair.call
      Process.detach(Process.spawn(RbConfig.ruby, "--disable-gems", "-e", PROGRAM, count.to_s, @run.point.to_s, 3 => far))
      far.close
      near.wait_readable
      near
    end
  end

  ONE_CLIENT = { unit: "us CPU", value: CPU, better: :less, operations: 10_000, seconds: 15, pinned: true, counted: false,
                 points: [0, 500], axis: "us between an answer and the next request" }.freeze

  Workload.define("one_tcp", title: "One client in another process, TCP", **ONE_CLIENT,
                             about: "one byte there and back at a time; the server's CPU; both processes on one core") do |run|
    listener = run.listener
    OneClient.new(run, -> { run.tcp_pair(listener) }).measure
  end

  Workload.define("one_unix", title: "One client in another process, UNIX", **ONE_CLIENT,
                              about: "the same over a UNIX stream socket pair") do |run|
    OneClient.new(run, -> { UNIXSocket.pair }).measure
  end
end

# frozen_string_literal: true

# An HTTP/1.1 server in ordinary blocking Ruby (examples/http_server.rb) under the load of another process.
require_relative "../../examples/http_server"

module Bench
  # The server inside a run, and the load on it.
  class Site
    def initialize(run, body_bytes: 0, at_rest: false)
      @run = run
      @server = HTTPServer.new(0, body_bytes)
      return @server.run_resting if at_rest

      run.spawn { @server.each_connection { |socket| run.spawn { @server.serve(socket) } } }
    end

    # Measures the server while it answers; its clients are not part of the process.
    def measure(connections, mode)
      answer = nil
      @run.measure(warm_up: [@run.operations / Run::WARM_UP, connections].max) do |count|
        answer = @run.outside("load", @server.port, connections, count, mode)
        @run.check([answer[:requests], answer[:errors]], [count, 0], "answers and errors")
      end
      @run.report(rate: @run.operations / answer[:seconds], p50: answer[:p50], p99: answer[:p99], max: answer[:max])
    end
  end

  Workload.define(
    "http_close", title: "HTTP, a connection per request", unit: "requests/s", value: :rate, operations: 12_000, least: 64, baseline: true,
    about: "the server of the evt benchmark: request read with gets, empty 200, close; 64 connections at a time, load from another process"
  ) { |run| Site.new(run).measure(64, "close") }

  Workload.define(
    "http_keep", title: "HTTP keep-alive, 64 connections", unit: "requests/s", value: :rate, operations: 60_000, least: 64, baseline: true,
    about: "the same server and load, connections kept"
  ) { |run| Site.new(run).measure(64, "keep-alive") }

  Workload.define(
    "http_1000", title: "HTTP keep-alive, 1,000 connections", unit: "requests/s", value: :rate, operations: 60_000, least: 1_000, baseline: true,
    about: "the same server, 1,000 connections all busy all the time"
  ) { |run| Site.new(run).measure(1_000, "keep-alive") }

  Workload.define(
    "syscalls", title: "System calls per keep-alive request", unit: "calls/request", value: :calls, better: :less, operations: 10_000,
    least: 2_000, rounds: 1, baseline: true,
    about: "4 kB bodies, 200 kept connections; counted (perf stat, or strace -c -f) in two runs of different length, of which the difference is taken"
  ) { |run| Site.new(run, body_bytes: 4096).measure(200, "keep-alive") }
end

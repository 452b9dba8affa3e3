# frozen_string_literal: true

# bin/bench servers: Reactor::Rack beside the servers that people use, one process each, on one processor; wrk asks from another one.
# docs/servers.md has its tables. Puma and the gems that are there for this Ruby take part.
#
#   bin/bench servers [SECONDS [ROUNDS]]    of each measurement (3, 3)

require "etc"
require "open3"
require "reactor"
require_relative "../tests/ruby/servers"

module ServersBench
  ROOT = File.expand_path("..", __dir__)
  # What wrk asks for.
  PAGES = { "/" => "hello world", "/page" => "a page of 10 kB", "/wait" => "a page that waits 50 ms", "/stream" => "ten parts of 1 kB, chunked" }.freeze
  CONNECTIONS = [1, 64, 1_000].freeze
  IDLE = 9_000
  # Seconds in which they must have been connected.
  PATIENCE = 60

  CONFIG = <<~RUBY
    page = ("x" * 10_240).freeze
    parts = Struct.new(:part) { def each = 10.times { yield part } }
    run lambda { |env|
      case env["PATH_INFO"]
      when "/page" then [200, { "content-type" => "text/html", "content-length" => "10240" }, [page]]
      when "/wait" then sleep(0.05) && [200, { "content-type" => "text/plain", "content-length" => "5" }, ["hello"]]
      when "/stream" then [200, { "content-type" => "text/plain" }, parts.new("x" * 1024)]
      else [200, { "content-type" => "text/plain", "content-length" => "5" }, ["hello"]]
      end
    }
  RUBY

  ASYNC = <<~RUBY
    require "async"; require "async/http/endpoint"; require "async/http/server"; require "protocol/rack"; require "rack/builder"
    app = Protocol::Rack::Adapter.new(Protocol::Rack::Adapter.parse_file(ARGV[1]))
    endpoint = Async::HTTP::Endpoint.parse("http://127.0.0.1:" + ARGV[0])
    Async { bound = endpoint.bound; puts "listening"; Async::HTTP::Server.new(app, bound, protocol: endpoint.protocol, scheme: "http").run }
  RUBY

  RUBY = [*(["taskset", "-c", "0"] if system("taskset", "-V", out: File::NULL, err: File::NULL)), RbConfig.ruby, "-I", File.join(ROOT, "lib")].freeze
  RACKUP = ->(server) { ->(port, config) { [*RUBY, "-e", "require 'rackup'; Rackup::Server.start", "--", "-s", server, "-E", "none", "-o", "127.0.0.1", "-p", port.to_s, config] } }

  # A server to measure: what it needs besides Rack, its environment, its command.
  Way = Struct.new(:name, :gems, :environment, :command)
  WAYS = [
    Way.new("reactor, epoll", %w[rackup], { "REACTOR_BACKEND" => "epoll" }, RACKUP["reactor"]),
    Way.new("reactor, uring", %w[rackup], { "REACTOR_BACKEND" => "uring" }, RACKUP["reactor"]),
    Way.new("Puma, 5 threads", %w[puma], {}, ->(port, config) { [*RUBY, "-S", "puma", "-q", "-t", "5:5", "-e", "none", "-b", "tcp://127.0.0.1:#{port}", config] }),
    Way.new("WEBrick", %w[rackup webrick], {}, RACKUP["webrick"]),
    Way.new("Async's server, io-event", %w[async-http protocol-rack], {}, ->(port, config) { [*RUBY, "-e", ASYNC, port.to_s, config] }),
    Way.new("Async's server, reactor", %w[async-http protocol-rack], {}, ->(port, config) {
      [*RUBY, "-r", "reactor/async", "-e", ASYNC.sub("Async {", "IO::Event::Selector.default(ENV); Async {"), port.to_s, config]
    }),
    Way.new("Falcon", %w[falcon], {}, ->(port, config) { [*RUBY, "-S", "falcon", "serve", "--threaded", "--count", "1", "--bind", "http://127.0.0.1:#{port}", "-c", config] }),
    Way.new("itsi", %w[itsi-server], {}, ->(port, config) { [*RUBY, "-S", "itsi", "-w", "1", "-t", "1", "-f", "true", "-r", config, "-b", "http://127.0.0.1:#{port}"] })
  ].freeze

  # Any of these programs.
  class Server < RealServer
    PROGRAM = "ruby"
    STOP_SIGNAL = :KILL

    def initialize(way)
      super()
      @way = way
      @config = File.join(directory, "config.ru")
      File.write(@config, CONFIG)
    end

    def cpu = File.read("/proc/#{pid}/stat")[/\) (.*)/, 1].split.values_at(11, 12).sum(&:to_f) / Etc.sysconf(Etc::SC_CLK_TCK)

    def kilobytes = File.read("/proc/#{pid}/status")[/^VmRSS:\s+(\d+)/, 1].to_i

    private

    def command = ["env", *@way.environment.map { |name, value| "#{name}=#{value}" }, *@way.command.call(port, @config)]
  end

  class << self
    def run(seconds, rounds)
      ways = WAYS.select { |way| way.gems.all? { |name| Gem::Specification.find_all_by_name(name).any? } }
      PAGES.each do |path, title|
        puts "", "#{title}: requests a second, us of CPU each, p50 and p99 in ms", "| | #{CONNECTIONS.map { |count| "#{count} connections" }.join(" | ")} |", "|---#{"|---:" * CONNECTIONS.size}|"
        results = Hash.new { |hash, key| hash[key] = [] }
        rounds.times { ways.each { |way| Server.run(way) { |server| CONNECTIONS.each { |count| results[[way, count]] << measure(server, path, count, seconds) } } } }
        ways.each { |way| puts "| #{way.name} | #{CONNECTIONS.map { |count| cell(results[[way, count]]) }.join(" | ")} |" }
      end
      puts "", "kB a connection, #{IDLE} idle ones"
      ways.each { |way| puts "| #{way.name} | #{idle(way)} |" }
      puts "Ruby #{RUBY_VERSION}, #{Etc.nprocessors} processors, load #{File.read("/proc/loadavg").to_f} at the end"
    end

    private

    def measure(server, path, count, seconds)
      before = server.cpu
      output, = Open3.capture2e("taskset", "-c", "1", "wrk", "-t1", "-c#{count}", "-d#{seconds}s", "--latency", "http://127.0.0.1:#{server.port}#{path}")
      requests = output[/(\d+) requests in/, 1].to_f
      failed = output[/Socket errors: .*|Non-2xx.*/]
      { rate: output[%r{Requests/sec:\s+([\d.]+)}, 1].to_f, cpu: (server.cpu - before) * 1e6 / requests, p50: milliseconds(output, 50), p99: milliseconds(output, 99), failed: failed }
    end

    def milliseconds(output, share)
      number, unit = output.match(/#{share}%\s+([\d.]+)(us|ms|s)/).captures
      number.to_f * { "us" => 0.001, "ms" => 1, "s" => 1_000 }[unit]
    end

    def cell(samples)
      median = ->(name) { samples.map { |sample| sample[name] }.sort[samples.size / 2] }
      figures = format("%.0f, %.1f, %.1f, %.1f", *%i[rate cpu p50 p99].map(&median))
      failed = samples.filter_map { |sample| sample[:failed] }.first
      failed ? "#{figures} (#{failed})" : figures
    end

    # @return [String] kilobytes of the server for each, or how many there were when the time was over
    def idle(way)
      Server.run(way) do |server|
        sockets = Array.new(100) { ask(server.port) }
        before = server.kilobytes
        deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE
        sockets << ask(server.port) while sockets.size < IDLE + 100 && Process.clock_gettime(Process::CLOCK_MONOTONIC) < deadline
        next "#{sockets.size - 100} in #{PATIENCE} s" if sockets.size < IDLE + 100

        sleep 1 # fibers that linger end
        (server.kilobytes - before).fdiv(IDLE).round(1)
      rescue SystemCallError, IOError => error # IO::TimeoutError: it admits fewer
        "#{sockets&.size}, then #{error.class}"
      ensure
        sockets&.each(&:close)
      end
    end

    def ask(port)
      socket = TCPSocket.new("127.0.0.1", port)
      socket.timeout = 5
      socket.write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
      socket.readpartial(4096)
      socket
    end
  end
end

ServersBench.run(Integer(ARGV.fetch(0, "3")), Integer(ARGV.fetch(1, "3"))) if $PROGRAM_NAME == __FILE__

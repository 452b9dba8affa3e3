# frozen_string_literal: true

# bin/bench rails: the page of examples/rails, which waits three times 0.1 s, served in several ways. docs/rails.md has its table.
#
#   bin/bench rails [PAGES]    how many pages each way serves (320)

require "etc"
require "net/http"
require "reactor"
require_relative "../tests/ruby/servers"

module RailsBench
  ROOT = File.expand_path("..", __dir__)
  # Pages at once.
  CLIENTS = 32
  # Pages before the measured ones, and those that one client asks for alone.
  FIRST, ALONE = 20, 10

  Way = Struct.new(:name, :way, :command)
  RUBY = [RbConfig.ruby, "-I", File.join(ROOT, "lib")].freeze
  APPLICATION = File.join(ROOT, "examples/rails/config.ru")

  def self.puma(threads, application)
    ->(port) { [*RUBY, "-S", "puma", "-q", "-t", "#{threads}:#{threads}", "-b", "tcp://127.0.0.1:#{port}", application] }
  end

  def self.rackup(application)
    start = ["-e", "require 'rackup'; Rackup::Server.start", "--", *%w[-s reactor -E production -o 127.0.0.1 -p]]
    ->(port) { [*RUBY, *start, port.to_s, application] }
  end

  UPSTREAM = ->(port) { [*RUBY, "-r", File.join(ROOT, "bench/rails.rb"), "-e", "RailsBench.upstream(#{port})"] }
  WAYS = [
    Way.new("Puma, 5 threads", "plain", puma(5, APPLICATION)),
    Way.new("Puma, 5 threads, and `Thread.new` for each wait", "threads", puma(5, APPLICATION)),
    Way.new("Puma, 5 threads with a scheduler each", "group", puma(5, APPLICATION)),
    Way.new("Puma, #{CLIENTS} threads", "plain", puma(CLIENTS, APPLICATION)),
    Way.new("Puma, #{CLIENTS} threads with a scheduler each", "group", puma(CLIENTS, APPLICATION)),
    Way.new("Async's server on this library, one thread", "async", ->(port) { [*RUBY, File.join(ROOT, "examples/rails/async_server.rb"), port.to_s] }),
    Way.new("`rackup -s reactor`, one thread", "group", rackup(APPLICATION))
  ].freeze

  # Any of these programs.
  class Server < RealServer
    PROGRAM = "ruby"
    STOP_SIGNAL = :KILL

    def initialize(environment, command)
      super()
      @environment, @command = environment, command
    end

    # Kilobytes at most, or threads now.
    def status(name) = File.read("/proc/#{pid}/status")[/^#{name}:\s+(\d+)/, 1].to_i

    private

    def command = ["env", *@environment.map { |name, value| "#{name}=#{value}" }, *@command.call(port)]
  end

  class << self
    # An HTTP service that answers after 0.1 s.
    def upstream(port)
      Fiber.set_scheduler(Reactor::Scheduler.new)
      Reactor::Server.new(TCPServer.new("127.0.0.1", port)) do |socket|
        next unless socket.gets("\r\n\r\n")

        sleep 0.1
        socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
      end.start
      Fiber.scheduler.run
    end

    # What config.ru needs. Each client's page has up to three connections.
    def environment(database, service)
      { "DATABASE_URL" => "postgresql://tester@127.0.0.1:#{database.port}/postgres?pool=#{CLIENTS * 3}", "UPSTREAM" => "http://127.0.0.1:#{service}/" }
    end

    def run(pages)
      puts "| | one page alone | pages a second, #{CLIENTS} clients | median | p99 | memory | threads |", "|---|---|---|---|---|---|---|"
      Server.run({}, UPSTREAM) do |service|
        WAYS.each { |way| puts measure(way, pages, service.port) }
      end
      puts "Ruby #{RUBY_VERSION}, #{Reactor.backend}, #{Etc.nprocessors} processors, load #{File.read("/proc/loadavg").to_f} at the end"
    end

    # @return [Array<Float>] how long each page took, in ms
    def load(port, path, pages, clients)
      left = pages
      Reactor.run do
        Reactor.group do |group|
          group.map(1..clients) do
            times = []
            Net::HTTP.start("127.0.0.1", port, read_timeout: 120) { |http| times << page(http, path) while (left -= 1) >= 0 }
            times
          end.flatten
        end
      end
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    private

    def measure(way, pages, service)
      PostgresServer.run do |database|
        Server.run(environment(database, service), way.command) do |server|
          path = "/page/#{way.way}"
          load(server.port, path, FIRST, CLIENTS)
          alone = load(server.port, path, ALONE, 1)
          start = now
          at_once = load(server.port, path, pages, CLIENTS)
          seconds = now - start
          format("| %s | %d ms | %.0f | %d ms | %d ms | %d MB | %d |", way.name, rank(alone, 0.5), pages / seconds, rank(at_once, 0.5), rank(at_once, 0.99),
                 server.status("VmHWM") / 1024, server.status("Threads"))
        end
      end
    end

    def page(http, path)
      start = now
      answer = http.get(path)
      raise "#{path}: #{answer.code} #{answer.body}" unless answer.code == "200"

      (now - start) * 1000
    end

    def rank(times, share) = times.sort[(times.size * share).ceil - 1]
  end
end

RailsBench.run(Integer(ARGV.fetch(0, "320"))) if $PROGRAM_NAME == __FILE__

# frozen_string_literal: true

# bin/bench rails_pool: how many connections of Active Record's pool requests need that wait between two queries, and within a
# transaction. docs/rails.md has its table.
#
#   bin/bench rails_pool [SECONDS]    how long each figure is measured (5)

require_relative "rails"

module RailsPoolBench
  APPLICATION = File.join(__dir__, "rails_pool.ru")
  CLIENTS = [10, 50, 200].freeze
  POOLS = [5, 20, 50].freeze
  PAGES = { "queries" => "between queries", "transaction" => "in a transaction" }.freeze
  # The command, and the isolation level.
  SERVERS = {
    "`rackup -s reactor`" => [RailsBench.rackup(APPLICATION), "fiber"],
    "Puma, 5 threads" => [RailsBench.puma(5, APPLICATION), "thread"],
    "Puma, 25 threads" => [RailsBench.puma(25, APPLICATION), "thread"]
  }.freeze

  class << self
    def run(seconds)
      figures = {}
      SERVERS.keys.product(POOLS) { |name, pool| measure(name, pool, seconds, figures) }
      columns = PAGES.keys.product(POOLS)
      puts row("", "requests at once", *columns.map { |page, pool| "#{PAGES[page]}, pool of #{pool}" })
      puts "|---|---|#{"---|" * columns.size}"
      SERVERS.keys.product(CLIENTS) do |name, clients|
        puts row(name, clients, *columns.map { |page, pool| figures[[name, clients, page, pool]] })
      end
      puts "Pages a second, and pages without a connection after 5 s. Ruby #{RUBY_VERSION}, #{Reactor.backend}, " \
           "#{Etc.nprocessors} processors, load #{File.read("/proc/loadavg").to_f} at the end"
    end

    private

    def row(*cells) = "| #{cells.join(" | ")} |"

    def measure(name, pool, seconds, figures)
      command, isolation = SERVERS[name]
      PostgresServer.run do |database|
        url = "postgresql://tester@127.0.0.1:#{database.port}/postgres?pool=#{pool}"
        RailsBench::Server.run({ "DATABASE_URL" => url, "ISOLATION" => isolation }, command) do |server|
          PAGES.each_key { |page| pages(server.port, page, CLIENTS.max, 1) } # the connections are made
          PAGES.keys.product(CLIENTS) { |page, clients| figures[[name, clients, page, pool]] = pages(server.port, page, clients, seconds) }
        end
      end
    end

    # Clients that ask for one page after another. They connect before, because some kernels reset connections that come all at once.
    def pages(port, page, clients, seconds)
      codes, in_time = [], 0
      Reactor.run do
        connections = Array.new(clients) { Net::HTTP.start("127.0.0.1", port, read_timeout: 120) }
        limit = RailsBench.now + seconds
        Reactor.group do |group|
          group.map(connections) do |http|
            while RailsBench.now < limit
              codes << http.get("/page/#{page}").code
              in_time += 1 if codes.last == "200" && RailsBench.now < limit
            end
            http.finish # a thread of Puma would wait for the next request
          end
        end
      end
      count = codes.tally
      raise "#{page}: #{count}" unless (count.keys - %w[200 503]).empty?

      [(in_time / seconds).round, *("(#{count["503"]} without)" if count["503"])].join(" ")
    end
  end
end

RailsPoolBench.run(Float(ARGV.fetch(0, "5"))) if $PROGRAM_NAME == __FILE__

# frozen_string_literal: true

# Serves config.ru by Puma until Ctrl-C, with everything it needs: its own PostgreSQL, and an HTTP service that responds after 0.1
# s.
#
#   bin/demo --rails
require_relative "../../bench/rails"

$stdout.sync = true
trap("TERM") { raise Interrupt }
begin
  PostgresServer.run do |database|
    RailsBench::Server.run({}, RailsBench::UPSTREAM) do |service|
      environment = RailsBench.environment(database, service.port)
      RailsBench::Server.run(environment, RailsBench.puma(5, RailsBench::APPLICATION)) do |server|
        puts "The application is on http://127.0.0.1:#{server.port}; Ctrl-C ends it."
        %w[plain threads group].each do |way|
          # The first page of each way loads code and connects to the database.
          times = Array.new(3) { RailsBench.load(server.port, "/page/#{way}", 1, 1).first }
          puts format("  GET /page/%-8s %3d ms", way, times.min)
        end
        puts "  POST /visits, GET /events"
        sleep
      end
    end
  end
rescue Interrupt
  nil # every server is stopped
end

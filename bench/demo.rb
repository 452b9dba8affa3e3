# frozen_string_literal: true

# The table of bin/demo: the same server run in every way, the same load at each.
require_relative "support"
require "reactor"

# A row is seen when it is measured, in a file as well.
$stdout.sync = true

CONNECTIONS = 64
REQUESTS = { "keep-alive" => 30_000, "close" => 6_000 }.freeze
ROUNDS = 2

# The server in a process of its own. Yields its port; returns what it says at its end.
def with_server(mode)
  server = IO.popen([*Bench::RUBY, "examples/http_server.rb", mode, "0"])
  yield Integer(server.gets[/\d+$/])
  Process.kill(:TERM, server.pid)
  JSON.parse(server.read.lines.last, symbolize_names: true)
ensure
  Process.kill(:KILL, server.pid)
  server.close
end

# @return [Hash] the account of the load
def load_on(port, requests, kind)
  output, status = Open3.capture2("target/release/http_load", "127.0.0.1:#{port}", CONNECTIONS.to_s, requests.to_s, kind)
  raise "the load failed: #{status}" unless status.success?

  JSON.parse(output, symbolize_names: true)
end

modes = ["blocking", "threads", *Reactor.backends.select { |_, usable| usable == true }.keys.map(&:to_s)]
names = { "blocking" => "plain blocking server", "threads" => "a thread per connection" }
names.default_proc = ->(_, mode) { "reactor, #{mode}" }

puts "An HTTP/1.1 server in ordinary blocking Ruby, #{CONNECTIONS} connections at a time. #{Bench.about}"
puts "Serving; each run is a server process and a load process of its own."
last = nil
targets = modes.product(REQUESTS.keys)
samples = Bench.interleave(targets, rounds: ROUNDS) do |mode, kind|
  requests = REQUESTS.fetch(kind)
  done = nil
  used = with_server(mode) { |port| done = load_on(port, requests, kind) }
  raise "#{done[:errors]} requests failed (#{mode}, #{kind})" unless done[:errors].zero?

  puts format("  %-30<name>s %-10<kind>s %7<rate>d req/s", name: names[mode], kind: kind, rate: requests / done[:seconds])
  last = used[:statistics] if mode == Reactor.backend.to_s && kind == "keep-alive"
  { rate: requests / done[:seconds], cpu: used[:cpu_seconds] / requests * 1e6 }
end
puts
rows = modes.map do |mode|
  [names[mode], *REQUESTS.keys.flat_map do |kind|
    middle = ->(key) { Bench.median(samples[[mode, kind]].map { _1[key] }) }
    [middle[:rate].round, format("%.1f", middle[:cpu])]
  end]
end
Bench.table(["", *REQUESTS.keys.flat_map { |kind| ["#{kind}, req/s", "CPU us/req"] }], rows)
puts
puts "The scheduler's own counters, #{Reactor.backend}, #{REQUESTS['keep-alive']} keep-alive requests:"
puts last.map { |name, value| "#{name} #{value}" }.each_slice(6).map { |line| "  #{line.join(', ')}" }

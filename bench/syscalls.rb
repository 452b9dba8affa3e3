# frozen_string_literal: true

# HAProxy's table for us: requests for 4 kB objects over 200 keep-alive connections, counted by strace -c -f. What a
# request costs must not depend on how many there are, and registrations must depend on connections only.
require_relative "support"

CONNECTIONS = 200
BODY = 4096
WATCHED = %w[recvfrom sendto read write io_uring_enter epoll_ctl epoll_wait ppoll poll fcntl ioctl futex timerfd_settime].freeze

def count(mode, requests)
  file = "tmp/strace.#{Process.pid}"
  Dir.mkdir("tmp") unless Dir.exist?("tmp")
  statistics = Bench.with_server(mode, body_bytes: BODY, wrapper: ["strace", "-c", "-f", "-o", file]) do |port|
    done = Bench.load(port, connections: CONNECTIONS, requests: requests, mode: "keep-alive")
    raise "#{done[:errors]} requests failed" unless done[:errors].zero? && done[:requests] == requests
  end
  calls = File.readlines(file).filter_map do |line|
    fields = line.split
    [fields.last, fields[3].to_i] if fields.first&.match?(/\A\d+\.\d+\z/) && fields.last != "total"
  end
  { calls: calls.to_h, statistics: statistics[:statistics] }
ensure
  File.delete(file) if file && File.exist?(file)
end

abort "strace is needed (apt-get install strace)" unless system("strace", "-V", out: File::NULL)
require "reactor"
natives = Reactor.backends.select { |_, usable| usable == true }.keys.map(&:to_s) - ["select"]
runs = [["threads", 10_000], *natives.product([10_000, 100_000])]
results = runs.to_h do |mode, requests|
  Bench.progress "#{mode}, #{requests} requests"
  [[mode, requests], count(mode, requests)]
end
Bench.progress nil

puts "System calls per request: #{BODY} B bodies, #{CONNECTIONS} keep-alive connections. #{Bench.about}"
names = WATCHED | results.values.flat_map { |result| result[:calls].select { |_, calls| calls > CONNECTIONS * 4 }.keys }
rows = names.filter_map do |name|
  values = runs.map { |run| results[run][:calls].fetch(name, 0) }
  next if values.all?(&:zero?)

  [name, *runs.zip(values).map { |(_, requests), calls| format("%.4f", calls.fdiv(requests)) }]
end
totals = runs.map { |run| format("%.4f", results[run][:calls].values.sum.fdiv(run.last)) }
Bench.table(["per request", *runs.map { |run| run.join(" ") }], [*rows, ["all", *totals]])
puts
natives.each do |native|
  control = runs.select { |mode, _| mode == native }.map { |run| results[run][:calls].fetch("epoll_ctl", 0) }
  puts "epoll_ctl in all, #{native}: #{control.first} for 10k requests, #{control.last} for 100k " \
       "(#{format('%.2f', control.last.fdiv(CONNECTIONS))} per connection)"
end

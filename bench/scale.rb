# frozen_string_literal: true

# More than one core: requests per second of the server of examples/cores.rb on 1 and on 2 workers, Ractors and threads.
#
#   bin/bench scale [REQUESTS]
#
# The load generator needs a core of its own: on a machine of two, a second worker gains less than there is to gain.
require "etc"
require_relative "support"

REQUESTS = Integer(ARGV.fetch(0, 20_000))
ROUNDS = 3

def with_cores(mode, count)
  reader, writer = IO.pipe
  pid = Process.spawn(*Bench::RUBY, "examples/cores.rb", mode, count.to_s, out: writer, pgroup: true)
  writer.close
  yield reader.gets[/\d+$/].to_i
ensure
  if pid
    Process.kill(:TERM, pid)
    Process.wait(pid)
  end
  reader&.close
end

puts "#{REQUESTS} keep-alive requests over 64 connections, #{ROUNDS} interleaved rounds, medians; #{Etc.nprocessors} cores. #{Bench.about}"
targets = %w[workers ractors threads].product([1, 2])
samples = Bench.interleave(targets, rounds: ROUNDS) do |mode, count|
  with_cores(mode, count) do |port|
    done = Bench.load(port, connections: 64, requests: REQUESTS, mode: "keep-alive")
    raise "#{done[:errors]} requests failed (#{mode}, #{count})" unless done[:errors].zero?

    REQUESTS / done[:seconds]
  end
end
rows = %w[workers ractors threads].map do |mode|
  one, two = [1, 2].map { |count| Bench.median(samples[[mode, count]]) }
  [mode, one.round, two.round, format("%.2f", two / one)]
end
Bench.table(["", "1, req/s", "2, req/s", "factor"], rows)

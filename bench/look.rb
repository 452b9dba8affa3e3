# frozen_string_literal: true

# What a look of reactor-top costs the process that it looks at: the processor time of the thread that answers, from the request
# to the text of the answer. The fibers wait for pipes and for a time, in turn. A garbage collection in that thread is part of it:
# it marks the stacks of all fibers.
#
#   bin/bench look [LOOKS]    500 looks at 10, 1,000 and 10,000 fibers
require_relative "support"

FIBERS = [10, 1_000, 10_000].freeze

# The process that is looked at. It ends when the pipe to it is closed.
def observed(count)
  require "reactor"
  Bench.descriptors(4_096)
  pipes = Array.new(100) { IO.pipe }
  Reactor.run do
    fibers = Array.new(count) { |i| Fiber.schedule { i.even? ? pipes[i % 100][0].wait_readable : sleep(3_600) } }
    observer = Reactor.observe
    puts observer.path
    $stdout.flush
    $stdin.read
    observer.close
    fibers.each(&:kill)
  end
end

# Milliseconds of each look.
def looks(count, number)
  IO.popen([*Bench::RUBY, __FILE__, "observed", count.to_s], "r+") do |process|
    path = process.gets.chomp
    Array.new(number) { JSON.parse(UNIXSocket.open(path, &:read)).fetch("snapshot_seconds") * 1000 }.tap { process.close_write }
  end
end

if ARGV.first == "observed"
  observed(Integer(ARGV.fetch(1)))
else
  number = Integer(ARGV.fetch(0, "500"))
  abort "bin/bench look [LOOKS]: one or more" unless number.positive?
  puts "Processor time of a look, #{number} looks. #{Bench.about}, load #{File.read("/proc/loadavg").to_f}", ""
  rows = FIBERS.map do |count|
    times = looks(count, number).sort
    figures = [Bench.median(times), times.sum / times.size, times[(times.size * 0.99).ceil - 1], times.last]
    [count, *figures.map { |time| format("%.2f ms", time) }]
  end
  Bench.table(["fibers", "median", "mean", "p99", "most"], rows)
end

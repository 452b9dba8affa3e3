# frozen_string_literal: true

# Sleepers beside fibers that are ready. Which of them goes first?
#
#   bin/bench sleepers [ROUNDS]
#
# The burst: fibers sleep for 1 ms, close one end of a socket pair, sleep for 1 ms, and close the other end. A reader of the other
# end gets EOF, or IOError if it has not run until then. The lateness: that of a sleep of 2 ms, beside fibers that are always
# ready.
require_relative "support"

BURSTS = [300, 1000].freeze
READY = [50, 200, 1000].freeze
SLEEPS = 100

# How many readers of a burst see the end.
def burst(tasks, size)
  seen = 0
  size.times do
    reader, writer = UNIXSocket.pair
    tasks.start do
      seen += 1 unless reader.read(1)
    rescue IOError
      nil # its end was closed first
    end
    tasks.start do
      sleep 0.001
      writer.close
      sleep 0.001
      reader.close
    end
  end
  tasks.finish
  seen
end

# The median in milliseconds.
def lateness(tasks, ready)
  late = []
  ready.times { tasks.start { tasks.pass until late.size == SLEEPS } }
  tasks.start do
    SLEEPS.times do
      before = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      sleep 0.002
      late << (Process.clock_gettime(Process::CLOCK_MONOTONIC) - before - 0.002) * 1000
    end
  end
  tasks.finish
  Bench.median(late)
end

if ARGV.first == "--measure"
  _, target, measure, size = ARGV
  puts send(measure, Bench::Tasks.new(target), size.to_i)
  exit
end

rounds = Integer(ARGV.fetch(0, 3))
targets = %w[epoll uring poll threads]
columns = BURSTS.map { |size| ["burst", size] } + READY.map { |count| ["lateness", count] }
puts "#{rounds} interleaved rounds, medians. #{Bench.about}"
samples = Bench.interleave(targets.product(columns), rounds:) do |target, (measure, size)|
  Bench.sample(__FILE__, "--measure", target, measure, size)
end
rows = targets.map do |target|
  cells = columns.map do |measure, size|
    value = Bench.median(samples[[target, [measure, size]]])
    measure == "burst" ? value.round : format("%.3f", value)
  end
  [target, *cells]
end
Bench.table(["", *BURSTS.map { |size| "EOF seen of #{size}" }, *READY.map { |count| "ms late beside #{count}" }], rows)

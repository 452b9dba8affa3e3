# frozen_string_literal: true

# A scheduler with nothing to do: one fiber in `sleep 5`, another Ruby thread counting meanwhile or not.
require_relative "support"

def switches = File.read("/proc/self/status")[/^voluntary_ctxt_switches:\s+(\d+)/, 1].to_i

def measure(with_thread)
  require "reactor"
  counted = 0
  Fiber.set_scheduler(Reactor::Scheduler.new)
  thread = Thread.new { loop { counted += 1; sleep 0.05 } } if with_thread
  before = switches
  cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
  Fiber.schedule { sleep 5 }
  Fiber.scheduler.run
  cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - cpu
  thread&.kill&.join
  puts JSON.generate(percent: cpu / 5 * 100, switches: switches - before, counted: counted)
end

if ARGV.first == "--measure"
  measure(ARGV[1] == "thread")
else
  alone = Bench.sample(__FILE__, "--measure", "alone")
  beside = Bench.sample(__FILE__, "--measure", "thread")
  puts "sleep 5 in one fiber. #{Bench.about}"
  Bench.table(
    ["", "CPU %", "voluntary switches", "ticks of the other thread (100 expected)"],
    [["alone", format("%.3f", alone[:percent]), alone[:switches], "-"],
     ["beside a thread", format("%.3f", beside[:percent]), beside[:switches], beside[:counted]]]
  )
end

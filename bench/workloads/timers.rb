# frozen_string_literal: true

# Time limits, sleeps, and the call that never waits.
require "timeout"

module Bench
  TIMEOUTS = ->(run) { run.measure { |count| count.times { Timeout.timeout(1) { sleep 0 } } } }

  Workload.define(
    "timeout", title: "Timeout.timeout around a short operation", unit: "calls/s", operations: 100_000, plain: TIMEOUTS,
    about: "Timeout.timeout(1) { sleep 0 }, which never fires; the operation gives way once",
    &TIMEOUTS
  )

  Workload.define(
    "sleeps", title: "10 sleeps in each of 10,000 tasks", unit: "s", value: :seconds, better: :less, operations: 10_000, least: 10, baseline: true,
    counted: false, without: { "threads" => [0, "that would be 10,000 threads"] },
    about: "10,000 tasks sleep 10 times for 1 to 10 ms, all at once; a task's sleeps add up to 55 ms"
  ) do |run|
    run.measure do |count|
      run.together(count) { |index| 10.times { |turn| sleep(((index + turn) % 10 + 1) / 1000.0) } }
    end
  end

  Workload.define(
    "devnull", title: "One-byte writes to /dev/null", unit: "x outside", value: :ratio, better: :less, operations: 600_000, least: 100,
    counted: false, without: { "threads" => [0, "nothing is different there"] },
    about: "sync 1-byte writes inside the scheduler, in parts of the time the same writes take in a Thread without one; ten alternating slices each"
  ) do |run|
    null = File.open(File::NULL, "w")
    null.sync = true
    slices = 10
    inside = outside = 0.0
    write = lambda do |count|
      started = Usage.clock(Process::CLOCK_THREAD_CPUTIME_ID)
      count.times { run.check(null.write("x"), 1, "bytes written") }
      Usage.clock(Process::CLOCK_THREAD_CPUTIME_ID) - started
    end
    run.measure do |count|
      inside = outside = 0.0
      slices.times do
        outside += Thread.new { write.call(count / slices) }.value
        inside += write.call(count / slices)
      end
    end
    run.report(ratio: inside / outside, inside_ns: inside / run.operations * 1e9, outside_ns: outside / run.operations * 1e9)
  end
end

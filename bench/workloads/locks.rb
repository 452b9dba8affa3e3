# frozen_string_literal: true

# Tasks that wait for each other, not for the kernel. Plain Ruby here means two fibers that switch by resume and yield:
# the least that a turn can cost.
module Bench
  TURNS = lambda do |run|
    other = Fiber.new { |value| value = Fiber.yield(value) while true }
    run.measure { |count| count.times { |turn| run.check(other.resume(turn), turn, "the value handed over") } }
  end

  # Two tasks that hand values to and fro through two queues.
  ROUND_TRIPS = lambda do |run, &start|
    there = Thread::Queue.new
    back = Thread::Queue.new
    start.call { back << there.pop while true }
    run.measure do |count|
      count.times do |turn|
        there << turn
        run.check(back.pop, turn, "the value that came back")
      end
    end
  end

  Workload.define(
    "cv", title: "ConditionVariable turns", unit: "turns/s", operations: 300_000, least: 2, plain: TURNS,
    about: "two tasks take turns under one Mutex with a ConditionVariable each way"
  ) do |run|
    mutex = Mutex.new
    conditions = Array.new(2) { ConditionVariable.new }
    run.measure do |count|
      turn = 0
      run.together(2) do |side|
        mutex.synchronize do
          while turn < count
            if turn % 2 == side
              turn += 1
              conditions[1 - side].signal
            else
              conditions[side].wait(mutex)
            end
          end
          conditions[1 - side].signal
        end
      end
      run.check(turn, count, "turns")
    end
  end

  Workload.define(
    "queue", title: "Queue round trips between tasks", unit: "round trips/s", operations: 200_000, plain: TURNS,
    about: "two tasks of one scheduler hand an integer to and fro through two queues"
  ) { |run| ROUND_TRIPS.call(run) { |&block| run.spawn(&block) } }

  Workload.define(
    "queue_thread", title: "Queue round trips with a Thread", unit: "round trips/s", operations: 60_000, pinned: true, baseline: true,
    about: "a task and a Thread hand an integer to and fro through two queues, the process pinned to one core"
  ) { |run| ROUND_TRIPS.call(run) { |&block| Thread.new(&block) } }
end

# frozen_string_literal: true

# Tasks themselves.
module Bench
  Workload.define(
    "spawn", title: "Fiber.schedule and finish", unit: "tasks/s", operations: 200_000, least: 100,
    about: "Fiber.schedule of a block that ends without waiting. Threads: Thread.new and join. Plain Ruby: Fiber.new and resume",
    plain: ->(run) { run.measure { |count| run.finished(count) { |done| count.times { Fiber.new { done.call }.resume } } } }
  ) do |run|
    run.measure do |count|
      run.finished(count) { |done| count.times { run.start { done.call } } }
    end
  end

  Workload.define(
    "spawn_yield", title: "Fiber.schedule with one yield", unit: "tasks/s", operations: 100_000, least: 100,
    about: "the same, each task yielding once by sleep 0, in batches of 100. Plain Ruby: Fiber.new, resume, Fiber.yield, resume",
    plain: lambda do |run|
      run.measure do |count|
        run.finished(count) do |done|
          count.times do
            fiber = Fiber.new { [Fiber.yield, done.call] }
            fiber.resume
            fiber.resume
          end
        end
      end
    end
  ) do |run|
    run.measure do |count|
      batches = (count / 100.0).ceil
      batches.times do |batch|
        size = [100, count - (batch * 100)].min
        run.finished(size) do |done|
          size.times do
            run.start do
              sleep 0
              done.call
            end
          end
        end
      end
    end
  end
end

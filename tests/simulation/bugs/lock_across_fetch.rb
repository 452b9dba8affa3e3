# frozen_string_literal: true

# Each of two branches locks its books while it asks the other one, which locks its own to answer.
Bugs.define("lock across a fetch") do |world, mended|
  world.link(latency: 0.001..0.05)
  branches = %w[north south]
  branches.each do |branch|
    other = (branches - [branch]).first
    world.client(branch) do
      lock = Mutex.new
      listening = Fiber.schedule { Bugs.listen(branch) { lock.synchronize { "balance" } } }
      3.times do
        sleep rand(0.0..1.0)
        lock.lock
        lock.unlock if mended
        Bugs.ask(other, "balance?")
        lock.unlock unless mended
      end
      sleep 60
      Fiber.scheduler.cancel_fiber(listening, nil)
    end
  end
end

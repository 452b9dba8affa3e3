# frozen_string_literal: true

# A cache whose entry is missing is filled by each request that comes until the first answer is there.
Bugs.define("cache stampede") do |world, mended|
  fetched, cache, lock = 0, {}, Mutex.new
  world.link(latency: 0.001..0.05)
  Bugs.serve(world, "source") { fetched += 1; "value" }
  fetch = -> { cache[:key] ||= Bugs.ask("source", "key") }
  Bugs.serve(world, "app") { mended ? lock.synchronize(&fetch) : fetch.call }
  3.times { |i| world.client("user #{i}") { sleep rand(0.0..1.0); Bugs.ask("app", "get") } }
  world.check { raise "fetched #{fetched} times" unless fetched == 1 }
end

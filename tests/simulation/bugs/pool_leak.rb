# frozen_string_literal: true

# A pool of two slots: a request that is timed out does not give its slot back.
Bugs.define("pool leak") do |world, mended|
  world.link(latency: 0.001..0.05, drop: 0.1)
  Bugs.serve(world, "db") { "row" }
  world.client("app") do
    pool = Queue.new
    2.times { pool << :slot }
    10.times do
      slot = pool.pop
      begin
        Timeout.timeout(0.5) { Bugs.ask("db", "query") }
        pool << slot unless mended
      ensure
        pool << slot if mended
      end
    rescue Timeout::Error
      nil # the next one may be faster
    end
  end
end

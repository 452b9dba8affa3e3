# frozen_string_literal: true

# The sender has written its last message, so it stops the collector: which may not have read it yet.
Bugs.define("lost last message") do |world, mended|
  collected, stopped = [], false
  world.link(latency: 0.001..0.05)
  Bugs.serve(world, "collector") do |line|
    next stopped = true if line == "stop"

    collected << line unless stopped
    "got it"
  end
  world.client("sender") do
    TCPSocket.open("collector", 80) do |socket|
      3.times do |i|
        socket.puts "message #{i}"
        socket.gets if mended || i < 2
      end
      Bugs.ask("collector", "stop")
    end
  end
  world.check { raise "collected #{collected.size} of 3" unless collected.size == 3 }
end

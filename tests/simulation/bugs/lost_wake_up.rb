# frozen_string_literal: true

# The consumer looks at a flag, writes a line to the log, and waits. If the flag is set in between, the signal comes too early.
Bugs.define("lost wake-up") do |world, mended|
  Bugs.serve(world, "log") { nil }
  world.client("worker") do
    log = TCPSocket.new("log", 80)
    lock, signal, ready = Mutex.new, ConditionVariable.new, false
    Fiber.schedule do
      sleep 1
      lock.synchronize { ready = true }
      signal.signal
    end
    sleep 1
    if mended
      lock.synchronize do
        log.puts "waiting" unless ready
        signal.wait(lock) until ready
      end
    elsif !ready
      log.puts "waiting"
      lock.synchronize { signal.wait(lock) }
    end
    log.close
  end
end

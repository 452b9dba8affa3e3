# frozen_string_literal: true

# Stands in for CRuby's test/fiber/scheduler.rb: the same class names, on top of ours. Written for bin/conformance, which
# puts it among CRuby's own tests; REACTOR_LIB is the directory of reactor.rb.
require "fiber"
require "socket"
begin
  require "io/nonblock"
rescue LoadError
  nil
end
$LOAD_PATH.unshift(ENV.fetch("REACTOR_LIB")) unless $LOAD_PATH.include?(ENV.fetch("REACTOR_LIB"))
require "reactor"

class Scheduler < Reactor::Scheduler
  # The tests switch to "the loop" by hand; without one, that is to let the others go first.
  def transfer = self.yield

  # Only its size is asked for.
  def waiting = Array.new(live)
end

# Ours has the buffer hooks anyway.
IOBufferScheduler = Scheduler

# Records what is written through the hook (4.0 and later).
class IOScheduler < Scheduler
  def operations = @operations ||= []

  def io_write(io, buffer, length, offset)
    operations << [:io_write, io.fileno, buffer.get_string]
    Fiber.blocking { buffer.write(io, 0, offset) }
  end
end

class IOErrorScheduler < Scheduler
  def io_read(...) = -Errno::EBADF::Errno
  def io_write(...) = -Errno::EINVAL::Errno
end

class BrokenUnblockScheduler < Scheduler
  def unblock(blocker, fiber)
    super
    raise "Broken unblock!"
  end
end

class SleepingUnblockScheduler < Scheduler
  def unblock(blocker, fiber)
    super
    sleep(0.1)
  end
end

# A blocking sleep on the way into the wait: what wakes the fiber comes meanwhile.
class SleepingBlockingScheduler < Scheduler
  def kernel_sleep(duration = nil)
    Fiber.blocking { sleep 0.0001 }
    block(:sleep, duration)
    true
  end
end

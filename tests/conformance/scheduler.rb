# frozen_string_literal: true

# Replaces test/fiber/scheduler.rb of CRuby: the same class names, as subclasses of Reactor::Scheduler. bin/check conformance puts
# it among the tests of CRuby; REACTOR_LIB is the directory of reactor.rb.
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
  # The tests transfer to the event loop. Without a loop fiber, the equivalent is to yield.
  def transfer = self.yield

  # The tests use its size only.
  def waiting = Array.new(live)
end

# Reactor::Scheduler has the buffer hooks.
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

# Blocks the thread before the wait: the wake-up arrives meanwhile.
class SleepingBlockingScheduler < Scheduler
  def kernel_sleep(duration = nil)
    Fiber.blocking { sleep 0.0001 }
    block(:sleep, duration)
    true
  end
end

# frozen_string_literal: true

module Reactor
  # The native selector's rare paths, which are better read in Ruby: what it says about an error that ended a fiber, how
  # it waits for children that no descriptor stands for, and what its hooks do in a forked child of the process it
  # belongs to (what Ruby does without a scheduler).
  class Selector
    private

    def report(error)
      return unless Thread.current.report_on_exception

      fiber = Fiber.current.inspect
      Fiber.blocking { $stderr.write("#{fiber} terminated with exception (report_on_exception is true):\n#{error.full_message}") }
    rescue IOError, SystemCallError
      nil # nobody is there to be told
    end

    def pass_on(blocker) = PortableScheduler.pass_on(blocker)

    # Until Process.wait may have an answer; takes no child.
    def await_child(pid, flags, waited)
      thread = Thread.new { Reactor.await_child(pid, flags) }
      thread.report_on_exception = false # joined below
      thread.join
      waited
    ensure
      thread&.kill
    end

    def blocking_wait(io, events, timeout) = Fiber.blocking { io.wait(events, timeout) } || false

    def blocking_sleep(duration) = Fiber.blocking { sleep(duration) }
  end

  class << self
    # Runs the block while no other Ractor does.
    #
    # @api private
    def exclusively
      sleep 0.0002 until claim
      begin
        yield
      ensure
        release
      end
    end
  end
end

# frozen_string_literal: true

module Reactor
  module Patches
    # Of Process's singleton class. A forked child is plain Ruby, and may make a scheduler of its own. What it has of its parent's:
    #
    # - The scheduler is removed from the thread: here, or from 4.0 on by Ruby. So no hook is called, and patches do what Ruby does.
    #   `forked_child?` is true for the object, which is closed: its hooks raise RuntimeError, and the parent's descriptors are left
    #   alone. The extension knows a child by the number of forks, which pthread_atfork(3) counts.
    # - A {Group} waits for no task, and the error of a task, a watcher or a {Server}'s block ends the child.
    # - A {Deadline} has no effect, nobody waits for a {Semaphore}, an {SnapshotServer} serves nobody, and a worker thread that has forked
    #   takes no further job. These need no scheduler, so they compare Process.pid.
    #
    # @api private
    module ForkedChild
      def self.needed? = Process.respond_to?(:fork)

      # Called by Kernel#fork, Process.fork and IO.popen with "-".
      def _fork = reactor_process__fork.tap { |pid| ForkedChild.leave_scheduler if pid.zero? }

      def daemon(...) = reactor_process_daemon(...).tap { ForkedChild.leave_scheduler }

      # The scheduler's own `close`, which this calls, does nothing in a forked child.
      def self.leave_scheduler = (Fiber.set_scheduler(nil) if Fiber.scheduler.is_a?(Schedulers::Member))
    end
  end
end

# frozen_string_literal: true

module Reactor
  # How a scheduler waits for child processes.
  module Processes
    # The hook for Process.wait and its like, Process::Status.wait, system, backticks, and the end of IO.popen.
    #
    # On Linux (5.3 and later) one child is waited for by its pidfd. For any child, a group, a stopped child, or on another
    # system, a thread learns of the event by waitid(2) and leaves the child to the fiber. The portable scheduler asks again and
    # again.
    #
    # So a wait that is interrupted has taken nothing: the child is there for the next wait.
    #
    # @param pid [Integer] as waitpid(2): a child, -1 any, 0 this process's group, below -1 that group
    # @param flags [Integer] Process::WUNTRACED or 0; with Process::WNOHANG Ruby does not call the hook
    # @return [Process::Status] also for an error (ECHILD), which the caller raises
    def process_wait(pid, flags)
      return Fiber.blocking { Process::Status.wait(pid, flags) } if forked_child?

      pid, flags = ChildEvents.integer(pid), ChildEvents.integer(flags)
      self.yield # a program that waits for one short-lived child after the other would let no other fiber run
      descriptor = ChildEvents.exit_descriptor(pid, flags)
      since = Clock.real
      until (status = ChildEvents.status(pid, flags))
        descriptor ? io_wait(descriptor, IO::READABLE, nil) : await_child(pid, flags, since)
      end
      status
    ensure
      descriptor&.close
    end
  end
end

# frozen_string_literal: true

module Reactor
  # Waits for child processes.
  module Processes
    # The hook for Process.wait and its variants, Process::Status.wait, system, backticks, and the end of IO.popen.
    #
    # On Linux (5.3 and later), a single child is awaited by its pidfd. In all other cases (any child, a group, a stopped child,
    # another system), a thread waits for the event by waitid(2), and leaves the status of the child for the fiber to take.
    #
    # So an interrupted wait takes nothing: the child is still there for the next wait. If a trap handler takes the child meanwhile
    # (a handler of SIGCHLD that reaps all children), the fiber still gets its status, as a thread of plain Ruby does that is blocked
    # in waitpid(2).
    #
    # @param pid [Integer] as waitpid(2): a child; -1: any; 0: this process's group; below -1: group -pid
    # @param flags [Integer] Process::WUNTRACED or 0; Ruby does not call the hook with Process::WNOHANG
    # @return [Process::Status] even for an error (ECHILD), which the caller then raises
    def process_wait(pid, flags)
      descriptor = ChildEvents.exit_descriptor(pid, flags)
      pid, flags = ChildEvents.integer(pid), ChildEvents.integer(flags)
      begin
        begin_child(pid) if pid.positive?
        self.yield # otherwise a program that waits for one short-lived child after another would starve the other fibers
        until (status = ChildEvents.status(pid, flags))
          descriptor ? io_wait(descriptor, IO::READABLE, nil) : await_child(pid, flags)
        end
      ensure
        number = end_child(pid) if pid.positive?
      end
      return status.tap { forget_child(status.pid) } unless status.pid == -1

      number = ChildEvents.taken(descriptor) if number == -1
      number ? Internal.process_status(pid, number) : status
    ensure
      descriptor&.close
    end
  end
end

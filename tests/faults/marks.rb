# frozen_string_literal: true

# What the supervisor takes for a mark: the priority of a process that does not exist. See src/marks.rs.
module Marks
  class << self
    # From now on the calls of this process count. They belong to the trial with this number.
    def begin(number = 0) = mark(1_200_000_000 + number)

    # From now on they do not.
    def end = mark(1_000_000_001)

    # From now on the descriptor belongs to the task with this number.
    def own(descriptor, task) = mark(1_100_000_000 + (1000 * task) + descriptor)

    private

    def mark(number)
      Process.getpriority(Process::PRIO_PROCESS, number)
    rescue Errno::ESRCH
      nil # without a supervisor
    end
  end
end

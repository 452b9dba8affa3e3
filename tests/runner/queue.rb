# frozen_string_literal: true

module Runner
  # Runs steps side by side, each after what it needs, and tells as soon as one, or a whole group, has ended.
  class Queue
    # Tests wait more than they compute.
    PER_PROCESSOR = 2

    def initialize(slots)
      @waiting = []
      @running = []
      @slots = slots
    end

    # Also while the queue runs.
    def add(steps) = @waiting.concat(steps)

    # Yields each step as it ends.
    def run(folder)
      until @waiting.empty? && @running.empty?
        start(folder)
        sleep 0.02
        ended, @running = @running.partition(&:ended?)
        ended.each { |step| yield step }
      end
    ensure
      @running.each(&:abort)
    end

    # Whether a step of this group is yet to end.
    def unfinished?(group) = (@waiting + @running).any? { |step| step.group == group }

    private

    def start(folder)
      while @running.size < @slots && (step = @waiting.find { |one| may_start?(one) })
        @waiting.delete(step)
        @running << step.start(folder)
      end
    end

    def may_start?(step)
      unfinished = @waiting + @running
      step.after.none? { |name| unfinished.any? { |other| [other.name, other.group].include?(name) } } &&
        (step.lane.nil? || @running.none? { |other| other.lane == step.lane })
    end
  end
end

# frozen_string_literal: true

module Runner
  # Runs steps concurrently, each after its dependencies, and yields each step as it ends.
  class Queue
    # More than one step per processor, because tests mostly wait.
    PER_PROCESSOR = 2

    def initialize(slots)
      @waiting = []
      @running = []
      @slots = slots
    end

    # May be called while the queue runs.
    def add(steps) = @waiting.concat(steps)

    # Yields each step as it ends.
    def run(folder)
      until @waiting.empty? && @running.empty?
        start(folder)
        sleep 0.02
        # One after another, so that a group whose last steps end together is finished with the last of them only.
        @running.select(&:ended?).each { |step| yield @running.delete(step) }
      end
    ensure
      @running.each(&:abort)
    end

    # Whether a step of this group has not ended.
    def unfinished?(group) = (@waiting + @running).any? { |step| step.group == group }

    private

    def start(folder)
      while @running.size < @slots && (step = next_step)
        @waiting.delete(step)
        @running << step.start(folder)
      end
    end

    # A step of a lane goes first, because the rest of its lane waits for it.
    def next_step
      startable = @waiting.select { |step| may_start?(step) }
      startable.find(&:lane) || startable.first
    end

    def may_start?(step)
      unfinished = @waiting + @running
      step.after.none? { |name| unfinished.any? { |other| [other.name, other.group].include?(name) } } &&
        (step.lane.nil? || @running.none? { |other| other.lane == step.lane })
    end
  end
end

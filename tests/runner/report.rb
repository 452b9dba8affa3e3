# frozen_string_literal: true

module Runner
  # The output of a run: a line for each part as it ends, then the skipped tests with the parts in which they ran.
  class Report
    def initialize(output)
      @output = output
      @tally = Tally.zero
      @started = now
      @groups = Hash.new { |hash, name| hash[name] = [] } # name => its steps that have ended
      @ran = Hash.new { |hash, id| hash[id] = [] }         # test => the parts in which it ran
      @skipped = Hash.new { |hash, id| hash[id] = {} }     # test => { part => reason }
    end

    # A step of the queue has ended. A part of the run is a step, or all steps of a group.
    def ended(step, queue)
      name = step.group || step.name
      @groups[name] << step
      part(name, @groups[name]) unless step.group && queue.unfinished?(step.group)
    end

    def problem(text)
      @tally += Tally.new(0, 1, 0)
      @output.puts "FAILED  #{text}"
    end

    # Tests that were skipped in all parts of this run, by reason.
    def never_ran
      never = @skipped.reject { |id, _| @ran.key?(id) }
      never.group_by { |_, reasons| reasons.values.first }.transform_values { |list| list.map(&:first).sort }
    end

    # @return [Boolean] whether nothing has failed
    def summary
      print_skips
      @output.printf("in %d s:\n%s\n", now - @started, @tally)
      @tally.failed.zero?
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def part(name, steps)
      seconds = steps.map(&:ended).max - steps.map(&:started).min
      tally = steps.map(&:tally).sum(Tally.zero)
      @tally += tally
      @output.printf("%-6s  %-40s %6.1f s   %s\n", tally.failed.zero? ? "ok" : "FAILED", name, seconds, tally)
      steps.each { |step| @output.puts step.details if step.failed? }
      # A step that cannot run here prints the reason last.
      steps.each { |step| @output.puts "        #{File.readlines(step.log).last}" if !step.group && tally.skipped.positive? && tally.passed.zero? }
      steps.each { |step| step.results.each { |result| record(name, result) } }
      @output.flush
    end

    def record(part, result)
      id = result["id"]
      result["code"] == "S" ? @skipped[id][part] = result["reason"] : @ran[id] << part
    end

    def print_skips
      rows = @skipped.flat_map { |id, reasons| reasons.map { |part, reason| [reason, part, id] } }
      rows.group_by(&:first).sort.each do |reason, list|
        ids = list.map(&:last).uniq
        places = ids.flat_map { |id| @ran.fetch(id, []) }.uniq
        ran = places.empty? ? "not in this run" : "ran in #{places.first}#{" and #{places.size - 1} more" if places.size > 1}"
        @output.puts "skipped: #{reason} (#{list.size}, #{ran})"
      end
    end
  end
end

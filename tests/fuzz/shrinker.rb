# frozen_string_literal: true

require_relative "program"

module Fuzz
  # Finds the smallest program that still differs: removes tasks, then operations, then simplifies what is left.
  class Shrinker
    # What a value becomes if it can. The first that still differs stays.
    SIMPLER = {
      kind: %w[pop pipe.readpartial pipe.wait_readable sleep], holder: %w[thread], own: [false], monitor: [false], resumed: [false],
      rescue: %w[none standard], around: %w[none far guard], delay: [0], from: %w[here], handled: [nil], conductor: %w[fiber],
      handler: [nil, "sleep 0.01"], ending: %w[finish], seconds: [60],
      storage: [nil], size: [10, 300], source: %w[file]
    }.freeze

    # @param limit [Numeric] seconds after which the smallest program found so far is the result
    # @yield [program] whether it still differs
    def initialize(limit, &differs)
      @limit = limit
      @differs = differs
    end

    # @return [Program]
    def smallest(program)
      @end = now + @limit
      @tried = {}
      loop do
        before = program
        program = pass(program)
        return program if program == before
      end
    end

    private

    # Tries each edit once. After one that is good the next edits are those of the smaller program, from the same place on.
    def pass(program)
      edits = edits(program)
      place = 0
      while place < edits.size
        candidate = edited(program, &edits[place]).tidy
        if candidate != program && candidate.valid? && good?(candidate)
          program = candidate
          edits = edits(program)
        else
          place += 1
        end
      end
      program
    end

    def good?(candidate)
      return false if now > @end || @tried[candidate]

      @tried[candidate] = true
      @differs.(candidate)
    end

    # A copy of the program's data, changed by the block.
    def edited(program)
      data = JSON.parse(program.to_s, symbolize_names: true)
      yield data
      Program.new(data)
    end

    # @return [Array<Proc>] each is given the data; those that remove most come first
    def edits(program)
      data = program.data
      tasks = data[:tasks].each_index.map { |number| ->(copy) { copy[:tasks].delete_at(number) } }
      paths = data[:tasks].each_index.flat_map { |number| paths(data[:tasks][number], [:tasks, number]) }
      tasks + tails(data) + removals(paths) + unwrappings(data, paths) + simplifications(data, paths)
    end

    # What a task does last.
    def tails(data)
      data[:tasks].each_index.flat_map do |number|
        (1...data[:tasks][number].size).map { |kept| ->(copy) { copy[:tasks][number].slice!(kept..) } }
      end
    end

    # @return [Array<Array>] where each operation is: the keys that lead to it
    def paths(ops, prefix)
      ops.each_with_index.flat_map do |op, index|
        path = [*prefix, index]
        [path, *Program.lists(op).flat_map { |list| paths(op[list], [*path, list]) }]
      end
    end

    def removals(paths) = paths.map { |path| ->(copy) { copy.dig(*path[..-2]).delete_at(path.last) } }

    # What a block contains takes its place.
    def unwrappings(data, paths)
      blocks = paths.select { |path| Program.lists(data.dig(*path)).any? }
      blocks.map do |path|
        lambda do |copy|
          op = copy.dig(*path)
          copy.dig(*path[..-2])[path.last, 1] = Program.lists(op).flat_map { |list| op[list] }
        end
      end
    end

    def simplifications(data, paths)
      holders = [[], *paths, *data[:shares].each_index.map { |number| [:shares, number] }]
      holders.flat_map do |path|
        holder = path.empty? ? data : data.dig(*path)
        values = changes(holder, path)
        steps = (holder[:by] || []).each_index.flat_map do |number|
          [*(removal(path, number) if number < holder[:by].size - 1), *changes(holder[:by][number], [*path, :by, number])]
        end
        steps + values
      end
    end

    def removal(path, number) = ->(copy) { copy.dig(*path)[:by].delete_at(number) }

    def changes(holder, path)
      SIMPLER.flat_map do |key, values|
        next [] unless holder[key]

        better = values.take_while { |value| value != holder[key] }.select { |value| fits?(holder, key, value) }
        better.map { |value| ->(copy) { (path.empty? ? copy : copy.dig(*path))[key] = value } }
      end
    end

    # A simpler wait can be ended in the same way.
    def fits?(holder, key, value)
      case key
      when :kind
        wait = WAITS.fetch(value)
        (holder[:seconds] ? wait.timed : (holder[:op] || wait.shared)) && holder[:by].all? { |step| Program.possible?(value, step[:do]) }
      when :seconds then holder[:op] == "timeout" && holder[key] > value
      else true
      end
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end

# frozen_string_literal: true

require_relative "program"

module Fuzz
  # Finds the smallest program that still differs: removes tasks, then operations, then what ends their waits.
  class Shrinker
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
      tasks + tails(data) + removals(paths) + unwrappings(data, paths) + endings(data, paths)
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

    # What happens to a wait before it is ended.
    def endings(data, paths)
      waits = [*paths, *data[:shares].each_index.map { |number| [:shares, number] }].select { |path| data.dig(*path)[:by] }
      waits.flat_map { |path| (data.dig(*path)[:by].size - 1).times.map { |number| ->(copy) { copy.dig(*path)[:by].delete_at(number) } } }
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end

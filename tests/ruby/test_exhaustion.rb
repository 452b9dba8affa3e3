# frozen_string_literal: true

require_relative "helper"
require_relative "cells"
require_relative "exhaustion"

# While a resource is exhausted, each operation succeeds or raises what plain Ruby raises. When it is available again, the
# operation succeeds on the same scheduler, the other fibers continue, and the run ends with nothing left over.
class TestExhaustion < ReactorTest
  # What an operation may raise for lack of a resource, if plain Ruby needs the resource for it or lacks the operation.
  ERRORS = {
    "descriptors" => %w[Errno::EMFILE],
    "threads" => %w[ThreadError],
    "fibers" => %w[FiberError],
    "memory" => %w[NoMemoryError Errno::ENOMEM]
  }.freeze

  # Differences from plain Ruby: [pattern of the cell, what it raises, the reason].
  BY_REASON = [
    [/\Ano threads\|.*\|(Process.wait of any|a FIFO|flock, waits)/, "ThreadError", "a thread waits for what no descriptor tells of"],
    [/\A0 descriptors\|cold\|connect to a name/, "Socket::ResolutionError", "the name's files are opened before the socket"]
  ].freeze

  def setup
    super
    needs_fork
    needs_linux "the size of the process from /proc"
  end

  def compare(*resources)
    env = { "RUBY_FIBER_MACHINE_STACK_SIZE" => ((1 << 28).to_s if resources.first.end_with?("fibers")), "MALLOC_ARENA_MAX" => "1" }
    wanted = resources.product(%w[cold warm], operations(Exhaustion::RUBY.merge(Exhaustion::OURS))).map { |cell| cell.join("|") }
    plain = wanted.filter_map { |cell| "plain|#{cell}" if Exhaustion::RUBY.key?(cell.split("|").last) }
    got = Cells.run(self, "exhaustion", plain + wanted.map { |cell| "fiber|#{cell}" }, env: env)
    wrong = wanted.filter_map do |cell|
      problems = problems(cell, got["fiber|#{cell}"], got["plain|#{cell}"])
      "#{cell}: #{problems.join(", ")}" unless problems.empty?
    end
    assert wrong.empty?, -> { "#{wrong.size} of #{wanted.size} cells:\n#{wrong.join("\n")}\n" }
  end

  # REACTOR_OPERATION=offload ruby tests/ruby/test_exhaustion.rb runs the operations whose names contain this word.
  def operations(table) = table.keys.grep(/#{ENV["REACTOR_OPERATION"]}/)

  def problems(cell, got, plain)
    resource = cell[/[^|]+/]
    return [got.to_s] unless got.value&.key?("after") && got.ended == "exit 0"

    seen = got.value
    usual = plain&.value ? plain.value["after"] : seen["before"] || seen["after"]
    # The first operation that fails may be the one that also fails in plain Ruby.
    expected = [usual, *(plain&.value ? plain.value["during"] : ERRORS.fetch(resource.split.last))]
    [
      ("plain Ruby #{plain}" if plain && (plain.value.nil? || plain.ended != "exit 0")),
      ("#{seen["during"]} while there is none, not #{expected.uniq.join(" or ")}" unless expected.include?(seen["during"]) || by_reason?(cell, seen["during"])),
      ("#{seen["after"]} afterwards, not #{usual}" unless seen["after"] == usual && !usual.match?(/\AErrno::EMFILE|NoMemoryError|FiberError|ThreadError/)),
      ("the bystander never went on" unless seen["bystander"]),
      ("run #{seen["run"]}" unless seen["run"] == "nil" || ERRORS.values.flatten.include?(seen["run"])),
      ("left #{seen["left"]}" unless seen["left"] == [0, 0, 0]),
      ("another run: #{seen["another run"]}" unless seen["another run"] == "1"),
      ("warns #{got.err.lines.first(3).join}" unless got.err.empty?)
    ].compact
  end

  def by_reason?(cell, seen)
    BY_REASON.any? { |pattern, tells, _| pattern.match?(cell) && tells == seen }
  end

  def test_descriptors = compare(*(0..1).map { |free| "#{free} descriptors" })
  def test_threads = compare("no threads")
  def test_fibers = compare(*(0..1).map { |free| "#{free} fibers" })
  def test_memory = compare("no memory")

  # Both need only a connection, so each client gets its response in the end.
  def accepting(failing, env = {})
    cells = %w[server observer].product(failing).map { |cell| cell.join("|") }
    got = Cells.run(self, "exhaustion", cells, env: { "MALLOC_ARENA_MAX" => "1", **env })
    wrong = cells.filter_map do |cell|
      seen = got[cell].value
      right = seen && seen.values_at("before", "during", "after") == %w[true true true] && seen["left"] == [0, 0, 0] && got[cell].err.empty?
      "#{cell}: #{got[cell]}" unless right && ["nil", "FiberError"].then { |fine| fine.include?(seen["run"]) || seen["run"].start_with?("Errno::") }
    end
    assert wrong.empty?, -> { "#{wrong.size} of #{cells.size} cells:\n#{wrong.join("\n")}\n" }
  end

  def test_accept_without_descriptors = accepting(["0 descriptors", "1 descriptors"])
  def test_accept_without_fibers = accepting(["0 fibers"], "RUBY_FIBER_MACHINE_STACK_SIZE" => (1 << 28).to_s)
end

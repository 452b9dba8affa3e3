# frozen_string_literal: true

require_relative "helper"
require_relative "cells"
require_relative "endings"

# Every way a scheduler can end, with fibers in every state; and in every place where it can be, with fibers in some states: what
# it raises, which ensure clauses run, that nothing is left over, and that nothing is written to $stderr.
class TestEndings < ReactorTest
  # Way => the last output, the status of the process, what happens to the fibers.
  WAYS = {
    "run" => ["value value", "exit 0", "completed"],
    "an error" => ["raises KeyError", "exit 0", "cancelled"],
    "an error of a fiber" => ["raises KeyError", "exit 0", "completed"],
    "exit" => ["raises SystemExit", "exit 3", "cancelled"],
    "exit of a fiber" => ["raises SystemExit", "exit 3", "cancelled"],
    "exit!" => [nil, "exit 4", nil],
    "abort" => ["raises SystemExit", "exit 1", "cancelled"],
    "exec" => [nil, "exit 5", nil],
    "TERM" => ["raises SignalException", "signal TERM", "cancelled"],
    "INT" => ["raises Interrupt", "signal INT", "cancelled"],
    "Thread#kill" => [nil, "exit 0", "cancelled"],
    "Thread#raise" => ["raises Endings::Stopped", "exit 0", "cancelled"],
    "set_scheduler(nil)" => ["value value", "exit 0", "completed"],
    "close" => ["value value", "exit 0", "completed"],
    "another scheduler" => ["value value", "exit 0", "completed"],
    "another run" => ["value value", "exit 0", "completed"],
    "the end of the thread" => ["value value", "exit 0", "completed"]
  }.freeze

  # States whose fibers print something, by what they print.
  NAMES = {
    "a waiting fiber" => "queue", "an Enumerator that waits" => "enumerator", "a timeout" => "timeout", "a read" => "read",
    "a busy worker" => "offload", "a child" => "child", "a group" => "group", "a thread" => "thread"
  }.freeze

  # Impossible combinations. For example, only the main thread gets signals.
  IMPOSSIBLE = [
    [/\A(a thread|a thread of a run)\|.*\|(TERM|INT)\z/, "a signal ends the main thread"],
    [/\A(a fiber|an Enumerator|a blocking fiber|at_exit)\|.*\|the end of the thread\z/, "the thread does not end there"]
  ].freeze

  def setup
    super
    needs_fork
    needs_linux "the descriptors from /proc"
  end

  def check(place)
    states = place == "main" ? Endings::STATES.keys : ["a waiting fiber", "a busy worker", "a child", "a group"]
    cells = states.product(Endings::WAYS.keys).map { |rest| [place, *rest].join("|") }
    cells.reject! { |cell| IMPOSSIBLE.any? { |pattern, _| pattern.match?(cell) } }
    cells = cells.grep(/#{ENV["REACTOR_CELL"]}/)
    got = Cells.run(self, "endings", cells)
    wrong = cells.filter_map { |cell| problem(cell, got[cell]) }
    assert wrong.empty?, -> { "#{wrong.size} of #{cells.size} cells:\n#{wrong.join("\n")}\n" }
  end

  def problem(cell, got)
    place, state, way = cell.split("|")
    said, ended, fate = WAYS.fetch(way)
    said = "raises SystemExit" if way == "Thread#kill" && !place.include?("a thread") # the main thread's is an exit
    lines = [(("#{NAMES[state]} #{fate}" if NAMES[state]) if fate), said]
    lines << "watcher ran" if state == "a watcher" && fate == "completed"
    (lines << "child #{ended}") && ended = "exit 0" if place.start_with?("a child")
    expected = [lines.compact.sort, ended, ""]
    # A lookup may end at any time. Ruby prints the backtrace of an Interrupt that ends the process.
    found = [got.out.lines(chomp: true).grep_v(/\Alookup/).sort, got.ended, way == "INT" ? "" : got.err]
    "#{cell}: #{got}, not #{expected.first.inspect}, #{ended}" unless found == expected
  end

  Endings::PLACES.each_key do |place|
    define_method(:"test_#{place.tr(" ", "_")}") { check(place) }
  end
end

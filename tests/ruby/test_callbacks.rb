# frozen_string_literal: true

require_relative "helper"
require_relative "cells"
require_relative "callbacks"

# Every callback of the library, with each class of error: where the error surfaces, that ensure clauses run, that nothing is left
# over, and that the scheduler continues or ends as documented.
class TestCallbacks < ReactorTest
  # The result where a method yields in plain Ruby; nil: the method does not return.
  PLAIN = {
    "StandardError" => "KeyError", "ClosedQueueError" => "ClosedQueueError", "FiberError" => "FiberError", "ScriptError" => "NotImplementedError", "SystemExit" => "SystemExit 3", "an Exception" => "Exception",
    "throw" => ":thrown", "Thread#kill" => nil, "Fiber#kill" => nil
  }.freeze
  UNCAUGHT = "UncaughtThrowError: uncaught throw :out"
  KILLED = "ThreadError: the worker was killed"

  # By where the callback runs: [what surfaces at the caller, what the run raises] for each error. :any: it depends on which fiber
  # runs first.
  EXPECTED = {
    caller: PLAIN.to_h { |error, comes| [error, [comes || "never returns", ":value"]] }
                 .merge("Thread#kill" => ["never returns", "ends the thread"], "Fiber#kill" => ["never returns", "returns"]),
    task: PLAIN.to_h { |error, comes| [error, [comes, ":value"]] }
               .merge("throw" => [UNCAUGHT, ":value"], "Thread#kill" => [:any, "ends the thread"], "Fiber#kill" => ["returns", ":value"]),
    worker: PLAIN.to_h { |error, comes| [error, [comes, ":value"]] }
                 .merge("throw" => [UNCAUGHT, ":value"], "Thread#kill" => [KILLED, ":value"], "Fiber#kill" => [KILLED, ":value"]),
    start: PLAIN.to_h { |error, comes| [error, [comes, ":value"]] }
                .merge("throw" => [UNCAUGHT, ":value"], "Thread#kill" => [:any, "ends the thread"], "Fiber#kill" => ["returns", ":value"]),
    fiber: PLAIN.to_h { |error, comes| [error, [:any, comes]] }
                .merge("throw" => [:any, UNCAUGHT], "Thread#kill" => [:any, "ends the thread"], "Fiber#kill" => [:any, ":value"]),
    run: PLAIN.to_h { |error, comes| [error, [nil, comes]] }
              .merge("throw" => [nil, UNCAUGHT], "Thread#kill" => [nil, "ends the thread"], "Fiber#kill" => [nil, "returns"]),
    # A reporter never ends a run.
    nowhere: PLAIN.to_h { |error, _| [error, [nil, "[:value, true]"]] },
    # The run raises the error that could not be reported, whatever the report raises.
    reporter: PLAIN.to_h { |error, _| [error, [nil, "IndexError: reported"]] }
  }.freeze

  def setup
    super
    needs_fork
    needs_linux "the descriptors from /proc"
  end

  def test_every_callback_and_every_error
    cells = Callbacks::ROWS.keys.product(Callbacks::ERRORS.keys).map { |cell| cell.join("|") }
    cells.reject! { |cell| cell.match?(/\AScheduler.new, .*\|Fiber#kill\z/) } # of a thread's root fiber: the VM aborts at Thread#join
    cells = cells.grep(/#{ENV["REACTOR_CELL"]}/)
    got = Cells.run(self, "callbacks", cells)
    wrong = cells.filter_map do |cell|
      list = problems(cell, got[cell])
      "#{cell}: #{list.join(", ")}" unless list.empty?
    end
    assert wrong.empty?, -> { "#{wrong.size} of #{cells.size} cells:\n#{wrong.join("\n")}\n" }
  end

  def problems(cell, got)
    return [got.to_s] unless got.value && got.ended == "exit 0"

    row, error = cell.split("|")
    where = Callbacks::ROWS.fetch(row).first
    exits = where == :nowhere && error == "SystemExit" # that ends the program, as on every thread: the main thread gets it
    at_caller, of_run = EXPECTED.fetch(where).fetch(error)
    seen, inside = got.value, !%i[run nowhere reporter].include?(where)
    [
      ("#{seen["caller"]} at the caller, not #{at_caller}" unless at_caller == :any || seen["caller"] == at_caller),
      ("#{seen["comes"]} comes out, not #{of_run}" unless seen["comes"] == of_run),
      ("the thread #{seen["joined"]}" unless seen["joined"] == (exits ? "SystemExit 3" : ":joined")),
      ("the ensure clause of the callback did not run" unless seen["ensured"]["callback"]),
      ("called #{seen["ensured"]["callback"]} times: nothing is reported any more" if where == :nowhere && !exits && !error.include?("kill") && seen["ensured"]["callback"] < 2),
      ("the ensure clause of the fiber beside it ran #{seen["ensured"]["beside"].to_i} times" if inside && seen["ensured"]["beside"] != 1),
      ("scheduler #{seen["scheduler"]}" if inside && seen["scheduler"] != [true, 0, 0]),
      ("left #{seen["left"]}" if seen["left"]),
      ("another run: #{seen["another run"]}" unless seen["another run"] == ":ok"),
      ("warns #{got.err[0, 300].inspect}" unless got.err.empty?)
    ].compact
  end
end

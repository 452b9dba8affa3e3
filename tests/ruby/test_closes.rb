# frozen_string_literal: true

require_relative "helper"
require_relative "cells"
require_relative "closes"

# An IO that others use is closed: every kind of wait, in every state, by every kind of closer. The closer returns, and the waits
# end as in threads: by the IOError that plain Ruby raises, or, if what they wait for has come, by its value.
class TestCloses < ReactorTest
  CLOSERS = Closes::CLOSERS.keys - ["plain"]
  # These run while the IO's other users do. A thread that joins them would keep the users from running.
  OWN = CLOSERS - ["a thread"]

  # Defects of the VM, in plain Ruby too. docs/promises.md tells the second one.
  KNOWN = {
    /\Aa (thread|root fiber|blocking fiber)\|.*\|a handler/ => "close waits for a mutex that may not be locked in a trap handler",
    /\A\S+ fibers?\|(recv|accept)\|(arrived|queued)\|close\|a (root )?fiber of a thread/ => "the mutex stays locked until the reader's thread ends"
  }.freeze

  def setup
    super
    needs_fork
  end

  def check(readers, waits, states, ways, closers)
    cells = [readers, waits, states, ways, closers].then { |first, *rest| first.product(*rest) }.map { |cell| cell.join("|") }
    cells.reject! { |cell| KNOWN.any? { |pattern, _| pattern.match?(cell) } } if RUBY_VERSION < "4.0"
    got = Cells.run(self, "closes", cells.grep(/#{ENV["REACTOR_CELL"]}/))
    wrong = got.reject { |cell, result| right?(cell, result) }
    assert wrong.empty?, -> { "#{wrong.size} of #{got.size} cells:\n#{wrong.map { |cell, result| "#{cell}: #{result}\n" }.join}" }
  end

  def right?(cell, result)
    reader, wait, state, way, = cell.split("|")
    answers, closed, is_closed = result.value
    # A reader of another thread may be about to wait when the close comes.
    error = wait == "select" || !reader.end_with?(" fiber", " fibers") || reader.match?(/root|blocking/) ? /\AIOError: / : /\AIOError: stream closed in another thread\z/
    expected = [error, *(Closes::WAITS.fetch(wait).last unless state == "parked")]
    [result.ended, result.err, closed, is_closed] == ["exit 0", "", [""], way != "reopen"] &&
      answers.any? && answers.all? { |answer| expected.any? { |one| one === answer } }
  end

  def test_plain_ruby_is_the_model
    check(["plain"], Closes::WAITS.keys - ["select"], %w[parked arrived], ["close"], ["plain"]) # select(2) notices no close
  end

  def test_an_io_that_a_fiber_uses = check(["a fiber"], Closes::WAITS.keys, Closes::STATES, ["close"], CLOSERS)

  def test_an_io_that_two_fibers_use
    check(["two fibers"], Closes::WAITS.keys, Closes::STATES, ["close"], ["the root fiber", "a fiber", "a thread"])
  end

  def test_an_io_that_another_thread_uses
    check(["a thread", "a root fiber", "a blocking fiber"], Closes::WAITS.keys - ["select"], %w[parked arrived], ["close"], OWN)
  end

  def test_a_half_that_is_the_whole
    check(["a fiber"], ["readpartial"], Closes::STATES, ["close_read"], CLOSERS)
    check(["a fiber"], ["write"], Closes::STATES, ["close_write"], CLOSERS)
  end

  def test_reopen
    waits, closers = %w[recv readpartial gets wait_readable], ["the root fiber", "a fiber", "a blocking fiber"]
    check(["a fiber"], waits, Closes::STATES, ["reopen"], closers)
    check(["a thread"], waits, %w[parked arrived], ["reopen"], closers)
  end
end

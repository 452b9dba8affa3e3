# frozen_string_literal: true

require_relative "helper"

begin
  require "pty"
  require "io/console"
rescue LoadError
  nil
end

# Terminals whose reads end without data (VMIN and VTIME of termios(3)), which poll(2) does not report.
class TestTerminal < ReactorTest
  def setup
    super
    skip "no pseudo-terminals" unless defined?(PTY) && IO.method_defined?(:getch)
    needs_linux "the portable scheduler knows only Linux's settings of a terminal" if select_backend?
    @master, @slave = PTY.open.each { |io| track(io) }
  end

  def compare(expected, &test)
    plain = run_plain(&test)
    ours = nil
    run_scheduler { Fiber.schedule { ours = test.call } }
    assert_equal [expected, expected], [plain, ours]
  end

  def test_getch_with_min_0_of_an_idle_terminal_returns_at_once
    compare([nil, nil]) { Array.new(2) { @slave.getch(min: 0) } }
  end

  def test_getch_with_min_0_returns_what_is_there
    compare(["x", nil]) do
      @master << "x"
      @slave.raw(min: 1) { @slave.wait_readable }
      Array.new(2) { @slave.getch(min: 0) }
    end
  end

  def test_getch_with_min_0_and_a_time_waits_for_that_time
    compare(nil) do
      answer = 0
      assert_operator elapsed { answer = @slave.getch(min: 0, time: 0.2) }, :>=, 0.15
      answer
    end
  end

  def test_getch_with_min_0_and_a_time_stops_no_other_fiber_and_gets_what_comes
    got = nil
    run_scheduler do |scheduler|
      Fiber.schedule { got = @slave.getch(min: 0, time: 25) }
      Fiber.schedule do
        until_parked(scheduler, 1)
        @master << "y"
      end
    end
    assert_equal "y", got
  end

  def test_a_read_of_a_raw_terminal_with_min_0_ends
    compare([nil, "", [nil]]) do
      @slave.raw(min: 0) do
        text = @slave.read(3)
        [text, @slave.read, [@slave.gets]]
      end
    end
  end

  # VMIN counts only without line editing.
  def test_a_line_is_waited_for
    got = nil
    run_scheduler do |scheduler|
      Fiber.schedule { got = @slave.gets }
      Fiber.schedule { until_parked(scheduler, 1); @master << "line\n" }
    end
    assert_equal "line\n", got
  end
end

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
    @master, @slave = PTY.open.each { |io| track(io) }
  end

  def compare(expected, &test)
    assert_equal [expected, expected], [run_plain(&test), in_fiber { test.call }]
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

  # With both a minimum and a time, the time runs from byte to byte. Each byte is written when the reader waits for it.
  def test_a_read_with_a_time_between_bytes_stops_no_other_fiber_and_gets_all_bytes
    plain = run_plain do
      @master << "abc"
      @slave.raw(min: 3, time: 25) { @slave.readpartial(9) }
    end
    got = nil
    run_scheduler do |scheduler|
      Fiber.schedule { got = @slave.raw(min: 3, time: 25) { @slave.readpartial(9) } }
      Fiber.schedule do
        %w[a b c].each_with_index do |byte, number|
          until_parked(scheduler, 1)
          @master << byte
          assert eventually { got || !@slave.wait_readable(0) }, "byte #{number} is not taken"
        end
      end
    end
    assert_equal ["abc", "abc"], [plain, got]
  end

  def test_a_read_with_a_time_between_bytes_ends_after_it_or_when_there_is_no_more_room
    @slave.raw(min: 5, time: 0.2) do
      compare(["a", true]) do
        @master << "a"
        text = nil
        waited = elapsed { text = @slave.readpartial(9) }
        [text, waited >= 0.15]
      end
      compare(%w[bc d]) do
        @master << "bcd"
        [@slave.sysread(2), @slave.sysread(1)]
      end
    end
  end

  # The master returns the settings of the other end.
  def test_the_master_of_a_terminal_whose_reads_end_at_once_is_waited_for
    [0, 0.1].each do |time|
      got = nil
      @slave.raw!(min: 0, time: time)
      run_scheduler do |scheduler|
        Fiber.schedule { got = @master.readpartial(9) }
        Fiber.schedule { until_parked(scheduler, 1); @slave << "x" }
      end
      assert_equal "x", got
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

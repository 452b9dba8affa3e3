# frozen_string_literal: true

require_relative "helper"
require "json"
require "open3"
require "tmpdir"

# Runs bin/bench with few operations: its output files, and the guard.
class TestBench < ReactorTest
  MAIN = File.join(ROOT, "bench", "harness", "main.rb")
  Outcome = Struct.new(:out, :err, :status, :data, :markdown)

  # Runs the harness with its results in a temporary directory.
  def bench(*arguments)
    Dir.mktmpdir do |directory|
      command = [RbConfig.ruby, "-w", MAIN, "--no-build", "--out", directory, *arguments]
      out, err, status = Open3.capture3({ "REACTOR_BACKEND" => BACKEND.to_s }, *command)
      files = %w[bench.json bench.md].map { |name| File.join(directory, name) }
      texts = files.map { |file| File.exist?(file) ? File.read(file) : nil }
      Outcome.new(out, err, status.exitstatus, texts[0] && JSON.parse(texts[0], symbolize_names: true), texts[1])
    end
  end

  TINY = %w[--scale 0.0005 --rounds 2].freeze

  def cell(outcome, row, target, point = 0)
    outcome.data[:rows].find { |found| found[:name] == row }[:points][point][:cells].fetch(target.to_sym)
  end

  def test_results_are_measured_and_written
    result = bench("unix_ping", "racket", "--most", "100", "--targets", "threads,#{BACKEND}", *TINY)
    assert_equal 0, result.status, result.err
    assert_equal [%w[unix_ping racket], ["threads", BACKEND.to_s]], [result.data[:rows].map { _1[:name] }, result.data[:targets].map { _1[:name] }]
    %w[unix_ping racket].product(["threads", BACKEND.to_s]) do |row, target|
      cell = cell(result, row, target)
      # Each target runs the same number of operations, which the workload verifies.
      assert_equal ["ok", [row == "racket" ? 5 : 40] * 2], [cell[:state], cell[:samples].map { _1[:operations] }]
      assert_includes cell[:low]..cell[:high], cell[:median]
      assert_operator cell.values_at(:low, :cpu_us).min, :>, 0
    end
    assert_match(/^\| Ping over a UNIX socket pair \| round trips\/s ↑ \| /, result.markdown)
    assert_includes result.out, result.markdown
  end

  # `bin/bench chart` draws them.
  def test_the_chart_of_the_readme_is_what_its_data_say
    require File.join(ROOT, "bench/chart")
    data = JSON.parse(File.read(File.join(ROOT, Bench::Chart::DATA)), symbolize_names: true)
    Bench::Chart.files(data).each { |path, text| assert_equal text, File.read(File.join(ROOT, path)), path }
  end

  # The guard's verdict on a row that used to take 1,000 instructions and two calls. `again`: the row in a second measurement.
  def guard(now, again = now)
    require File.join(ROOT, "bench/guard")
    guard = Bench::Guard.new(["yield"])
    { unavailable: nil, known: { "yield" => { "instructions" => 1_000, "calls" => 2.0 } } }
      .each { |name, value| guard.define_singleton_method(name) { value } }
    measurements = [now, again]
    guard.define_singleton_method(:measure) { { "yield" => measurements.shift } }
    status = nil
    out, = capture_io { status = guard.run }
    [status, out]
  end

  def test_the_guard_refuses_a_row_that_is_dearer_when_it_is_measured_again
    assert_equal 0, guard({ "instructions" => 1_030, "calls" => 2.02 }).first
    status, out = guard({ "instructions" => 1_031, "calls" => 2.0 })
    assert_equal 1, status
    assert_includes out, "dearer: yield"
    assert_equal 1, guard({ "instructions" => 900, "calls" => 2.04 }).first
    status, out = guard({ "instructions" => 1_100, "calls" => 2.0 }, { "instructions" => 1_000, "calls" => 2.0 })
    assert_equal 0, status
    assert_includes out, "measured again: yield"
  end
end

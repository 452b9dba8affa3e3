# frozen_string_literal: true

require_relative "helper"
require "json"
require "open3"
require "tmpdir"
begin
  require "rexml/document"
rescue LoadError
  nil # a bundled gem, which some distributions have in a package of its own
end

# bin/bench on few operations: its output files, runs that fail, hang or give wrong results, and wrong arguments.
class TestBench < ReactorTest
  MAIN = File.join(ROOT, "bench", "harness", "main.rb")
  # The Rust programs that `cargo test` has built; measurements use optimized ones.
  EXAMPLES = File.join(ROOT, "target", "debug", "examples")

  Outcome = Struct.new(:out, :err, :status, :data, :markdown, :page)

  # Runs the harness with its results in a temporary directory.
  def bench(*arguments, examples: EXAMPLES)
    Dir.mktmpdir do |directory|
      command = [RbConfig.ruby, "-w", MAIN, "--no-build", "--out", directory, *arguments]
      out, err, status = Open3.capture3({ "REACTOR_BACKEND" => BACKEND.to_s, "REACTOR_EXAMPLES" => examples }, *command)
      files = %w[bench.json bench.md bench.html].map { |name| File.join(directory, name) }
      texts = files.map { |file| File.exist?(file) ? File.read(file) : nil }
      yield directory if block_given?
      Outcome.new(out, err, status.exitstatus, texts[0] && JSON.parse(texts[0], symbolize_names: true), texts[1], texts[2])
    end
  end

  def only_on_one_backend = (skip "bin/bench does not depend on the backend" if linux? && BACKEND != :epoll)

  TINY = %w[--scale 0.0005 --rounds 2].freeze

  def cell(outcome, row, target, point = 0)
    outcome.data[:rows].find { |found| found[:name] == row }[:points][point][:cells].fetch(target.to_sym)
  end

  def test_results_are_measured_and_written
    result = bench("unix_ping", "racket", "--most", "100", "--targets", "threads,#{BACKEND}", *TINY)
    assert_equal 0, result.status, result.err
    assert_equal [%w[unix_ping racket], ["threads", BACKEND.to_s]], [result.data[:rows].map { _1[:name] }, result.data[:targets].map { _1[:name] }]
    %w[unix_ping racket].product(["threads", BACKEND.to_s]) { |row, target| check_cell(cell(result, row, target), row) }
    assert_equal [100], (result.data[:rows].last[:points].map { _1[:n] })
    assert_match(/^\| Ping over a UNIX socket pair \| round trips\/s ↑ \| /, result.markdown)
    assert_includes result.out, result.markdown
    check_page(result.page, plots: 4) # of each row, and two overviews
  end

  def check_cell(cell, row)
    assert_equal "ok", cell[:state]
    assert_equal 2, cell[:samples].size
    # Each target runs the same number of operations, which the workload verifies.
    assert_equal [row == "racket" ? 5 : 40], cell[:samples].map { _1[:operations] }.uniq
    assert_includes cell[:low]..cell[:high], cell[:median]
    assert_operator cell[:low], :>, 0
    assert_operator cell[:cpu_us], :>, 0
    assert_operator cell[:variation], :>=, 0
  end

  # The page refers to no other file, and its plots are well-formed XML.
  def check_page(page, plots:)
    refute_match(/\b(?:src|href)=|url\(|@import/, page)
    drawings = page.scan(%r{<svg.*?</svg>}m)
    assert_equal plots, drawings.size
    refute_match(/NaN|Infinity|>[^<]*false</, page)
    skip "the drawings are not parsed: the rexml gem cannot be loaded" unless defined?(REXML::Document)
    drawings.each { |drawing| assert_equal "svg", REXML::Document.new(drawing).root.name }
  end

  def test_other_schedulers_are_reported_as_ok_wrong_or_failed
    code = 'require "reactor"; Class.new(Reactor::Scheduler::Portable)'
    result = bench("lines", "--targets", BACKEND.to_s, *TINY,
                   "--against", "other=#{code}.new",
                   "--against", "liar=#{code}.class_eval { def io_read(_, buffer, *) = super.tap { buffer.set_string('?') } ; self }.new",
                   "--against", "absent=raise 'no luck'")
    # A failure of another scheduler is reported but does not fail the command.
    assert_equal 0, result.status, result.err
    assert_equal %w[ok ok failed failed], [BACKEND.to_s, "other", "liar", "absent"].map { |name| cell(result, "lines", name)[:state] }
    assert_includes cell(result, "lines", "liar")[:words], "wrong result: the line that came back"
    assert_includes cell(result, "lines", "absent")[:words], "no luck"
    assert_includes result.page, "What gave no result"
  end

  # `bin/bench chart` draws them.
  def test_the_chart_of_the_readme_is_what_its_data_say
    only_on_one_backend
    require File.join(ROOT, "bench/chart")
    data = JSON.parse(File.read(File.join(ROOT, Bench::Chart::DATA)), symbolize_names: true)
    Bench::Chart.files(data).each { |path, text| assert_equal text, File.read(File.join(ROOT, path)), path }
  end

  # No other target runs, so the limit cannot end one on a slow machine.
  def test_another_scheduler_that_hangs_is_ended_at_the_limit
    result = bench("lines", "--targets", "", "--limit", "1", *TINY, "--against", "stuck=sleep")
    assert_equal 0, result.status, result.err
    assert_equal "hang", cell(result, "lines", "stuck")[:state]
    assert_includes result.err, "HANG: lines, stuck"
    assert_includes result.page, "What gave no result"
  end

  def test_a_failure_of_reactor_makes_the_command_fail
    skip "cargo test has not built the examples" unless File.exist?(File.join(EXAMPLES, "http_load"))
    result = bench("http_keep", "--targets", BACKEND.to_s, *TINY)
    assert_equal 0, result.status, result.err
    without = bench("http_keep", "--targets", BACKEND.to_s, *TINY, examples: File.join(ROOT, "tests"))
    assert_equal 1, without.status
    assert_match(/bench: http_keep failed on reactor #{BACKEND}: RuntimeError: load failed: /, without.err)
  end

  def test_the_baseline_measures_every_workload_that_declares_it
    only_on_one_backend
    skip "cargo test has not built the examples" unless File.exist?(File.join(EXAMPLES, "baseline"))
    needs_linux("raw epoll")
    rows = JSON.parse(child_says(<<~RUBY), symbolize_names: true).values_at(:with, :without)
      require "json"
      require #{File.join(ROOT, "bench/harness/workload").inspect}
      rows = Bench::Workload.all.values.reject { |row| row.value == :calls }
      puts JSON.generate(rows.partition(&:baseline).map { |part| part.map(&:name) }.then { |with, without| { with: with, without: without } })
    RUBY
    result = bench(*rows.first, "--targets", "baseline", "--most", "100", "--scale", "0.002", "--rounds", "1")
    assert_equal 0, result.status, result.err
    rows.first.each { |name| assert_equal "ok", cell(result, name, "baseline")[:state], name }
    assert_equal "left_out", cell(bench(rows.last.first, "--targets", "baseline"), rows.last.first, "baseline")[:state]
  end

  def test_wrong_arguments_are_refused_with_a_message
    only_on_one_backend
    { ["nosuch"] => "no workload nosuch", ["--rounds", "0"] => "--rounds takes a number from 1 to 1000, not 0", ["--rounds", "x"] => "invalid argument: --rounds x",
      ["--targets", "absent"] => "no target absent here (there are: threads, plain, ", ["--against", "absent"] => "no scheduler \"absent\"",
      ["--against", "threads=1"] => "two targets are called threads", ["--render", "/nowhere"] => "/nowhere cannot be read", ["--bogus"] => "invalid option: --bogus" }.each do |arguments, words|
      result = bench(*arguments)
      assert_equal 2, result.status, arguments.inspect
      assert_includes result.err, "bin/bench: #{words}"
      assert_nil result.data
    end
    missing = bench("--targets", "baseline", "unix_ping", examples: "/nowhere")
    assert_equal [2, true], [missing.status, missing.err.start_with?("bin/bench: the baseline is not built (/nowhere/baseline): ")]
  end

  def test_an_interrupted_run_keeps_the_finished_measurements
    only_on_one_backend
    Dir.mktmpdir do |directory|
      reader, writer = IO.pipe
      pid = Process.spawn({ "REACTOR_BACKEND" => BACKEND.to_s }, RbConfig.ruby, "-w", MAIN, "--no-build", "--out", directory, "--targets", "threads",
                          "--scale", "0.001", "--rounds", "1", "--limit", "3600", "unix_ping", "lines",
                          "--against", "endless=sleep if ARGV.first == 'lines'; require 'reactor'; Reactor::Scheduler.new", out: File::NULL, err: writer, pgroup: true)
      writer.close
      Timeout.timeout(TEST_TIMEOUT) { nil until reader.gets.start_with?("unix_ping") }
      Process.kill(:INT, pid)
      assert_equal 130, reap(pid, TEST_TIMEOUT).exitstatus
      reader.close
      rows = JSON.parse(File.read(File.join(directory, "bench.json")), symbolize_names: true)[:rows]
      assert_equal %w[ok left_out], (rows.map { |row| row[:points].first[:cells][:endless][:state] })
    end
  end

  def test_system_calls_are_the_difference_of_two_runs
    require File.join(ROOT, "bench/harness/run")
    require File.join(ROOT, "bench/harness/calls")
    text = <<~TEXT
      % time     seconds  usecs/call     calls    errors syscall
      ------ ----------- ----------- --------- --------- ----------------
       60.00    0.000600           1       110           sendto
       40.00    0.000400           1        40        10 epoll_ctl
      ------ ----------- ----------- --------- --------- ----------------
      100.00    0.001000                   150        10 total
    TEXT
    short = Bench::Calls::Strace.parse(text)
    assert_equal({ "sendto" => 110, "epoll_ctl" => 40 }, short)
    assert_equal({ "sendto" => 110, "epoll_ctl" => 40, "remaining" => 3 }, Bench::Calls::Perf.parse(<<~TEXT))
      # started on Sat Nov 21 19:00:00 2026

      153,,raw_syscalls:sys_enter,1000,100.00,,
      110,,syscalls:sys_enter_sendto,1000,100.00,,
      40,,syscalls:sys_enter_epoll_ctl,1000,100.00,,
      <not supported>,,syscalls:sys_enter_poll,0,100.00,,
    TEXT
    # 100 operations with 10 to warm up, then 300 with 30: one sendto each, no epoll_ctl but those at the start.
    difference = Bench::Calls.difference([short, { "sendto" => 330, "epoll_ctl" => 40 }], [100, 300])
    assert_equal({ "sendto" => 1.0 }, difference[:names])
    assert_in_delta 1.0, difference[:calls]
    assert_equal [40, 40], difference[:control]
  end

  # The guard's answer for a row that took 1,000 instructions and two calls before. `again`: the row in a second measurement.
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

  def test_the_guard_counts_the_same_calls_on_a_slow_machine
    require File.join(ROOT, "bench/guard")
    guard = Bench::Guard.new(["schedule"])
    skip "strace is missing" unless system("strace", "--version", out: File::NULL, err: File::NULL)

    Dir.mktmpdir do |folder|
      clock = guard.send(:compile_clock, folder)
      # The scheduler polls when 0.5 ms have passed: each tenth return of a stack to the kernel takes longer.
      quick, slow = [[], ["-e", "inject=madvise:delay_exit=600:when=1+10"]].map { |options| guard.send(:calls, folder, clock, *options).first(2) }
      # A page more or less of memory is a call; a poll for each delay would be a hundred.
      quick.zip(slow) { |calls, others| assert_in_delta calls, others, 20 }
    end
  end

  def test_the_guard_counts_from_mark_to_mark
    require File.join(ROOT, "bench/guard")
    assert_equal [10.0, 0.0], Bench::Guard.new([]).send(:per_operation, [1_000, 11_000, 7, 50, 50, 0])
  end
end

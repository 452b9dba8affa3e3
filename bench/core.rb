# frozen_string_literal: true

# What the core costs beside epoll and io_uring by hand, mio and polling, as Markdown.
#
#   bin/bench core           the interleaved cycle: processor time and instructions; a minute
#   bin/bench core quick     the same, and all of criterion's groups, shortly measured
#   bin/bench core full      the same, and all of criterion's groups, with plots; a quarter of an hour
#
# Processor time and instructions hold on a busy machine; criterion's times want a quiet one.

require "json"
require "open3"

SIZES = [1, 100, 10_000].freeze
OURS = "reactor on epoll"
RAW = "raw epoll"
USUAL = "mio, register and deregister"
PAYLOAD = "payload"
CARGO_BENCH = %w[cargo bench --locked --package reactor-benches --bench].freeze

def run(*command)
  output, errors, status = Open3.capture3(*command)
  abort "#{command.join(" ")}:\n#{errors}" unless status.success?
  output
end

def table(head, rows)
  puts "| #{head.join(" | ")} |", "|#{head.each_index.map { _1.zero? ? "---" : "---:" }.join("|")}|"
  rows.each { |row| puts "| #{row.join(" | ")} |" }
  puts
end

def nanoseconds(number)
  return "#{number.round} ns" if number < 1_000
  return format("%.2f us", number / 1e3) if number < 1e6

  format("%.2f ms", number / 1e6)
end

# --- the interleaved cycle --------------------------------------------------------------------------------------------

# By name, then by size.
def paired_comparison
  JSON.parse(run(*CARGO_BENCH, "paired_comparison", "--", "--json"))
    .group_by { _1["name"] }
    .transform_values { |rows| rows.to_h { |row| [row["size"], row] } }
end

def cycles(figures)
  puts "## A cycle: a byte comes to one of 100 active sources, is announced and read", ""
  puts "Processor time, median of 61 interleaved rounds of 1,000 cycles, and in brackets the median of the ratios to #{RAW} in the " \
       "same round; `payload` is the byte alone, without a wait.", ""
  rows = figures.map do |name, by_size|
    [name, *SIZES.map { |size| by_size[size] ? format("%d ns (%.2f)", *by_size[size].values_at("median", "ratio")) : "-" }]
  end
  table(["", *SIZES.map { "#{_1} registered" }], rows)
end

def claims(figures)
  median = ->(name, size) { figures.dig(name, size, "median") }
  # In units of a cycle of epoll by hand, so that rounds are compared with themselves.
  ratio = ->(name, size) { figures.dig(name, size, "ratio") }
  waiting = ->(name, size) { figures.dig(name, size, "ratio") - figures.dig(PAYLOAD, size, "ratio") }
  puts "## What that says", ""
  table(["", "bound", *SIZES], [
    ["cycle, ours / epoll by hand", "<= 1.10", *SIZES.map { format("%.3f", ratio[OURS, _1]) }],
    ["waiting alone (cycle - payload), #{USUAL} / ours", ">= 2", *SIZES.map { format("%.2f", waiting[USUAL, _1] / waiting[OURS, _1]) }],
    ["whole cycle, #{USUAL} / ours", "", *SIZES.map { format("%.2f", ratio[USUAL, _1] / ratio[OURS, _1]) }],
    ["the same of epoll by hand: no more can be had", "", *SIZES.map { format("%.2f", ratio[USUAL, _1]) }],
    ["the byte's own write and read, of our cycle", "", *SIZES.map { format("%.0f %%", 100 * ratio[PAYLOAD, _1] / ratio[OURS, _1]) }],
    ["cycle, ours, 10,000 / 100 registered", "<= 1.1", "", "", format("%.3f", median[OURS, 10_000] / median[OURS, 100])],
    ["the same of epoll by hand", "", "", "", format("%.3f", median[RAW, 10_000] / median[RAW, 100])]
  ])
end

# --- instructions -----------------------------------------------------------------------------------------------------

def program
  run(*CARGO_BENCH, "paired_comparison", "--no-run", "--message-format=json").lines
    .map { JSON.parse(_1) }.filter_map { _1["executable"] }.last
end

# Outside the kernel, of one cycle: the difference between two runs, so that the start-up does not count.
def instructions(program, name)
  counts = [1_000, 3_000].map do |cycles|
    _, text, status = Open3.capture3("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, name, "100", cycles.to_s)
    text[/Collected : (\d+)/, 1]&.to_i if status.success?
  end
  (counts[1] - counts[0]) / 2_000 if counts.all?
end

def instruction_counts(names)
  return puts "(No valgrind here: instructions are not counted.)", "" unless system("valgrind", "--version", out: File::NULL, err: File::NULL)

  program = self.program
  puts "## Instructions of a cycle outside the kernel, 100 registered", ""
  table(["", "instructions"], names.map { |name| [name, instructions(program, name) || "-"] })
end

# --- criterion --------------------------------------------------------------------------------------------------------

# By group, then by function, then by value.
def estimates
  Dir["target/criterion/**/new/estimates.json"].each_with_object({}) do |path, groups|
    id = JSON.parse(File.read(File.join(File.dirname(path), "benchmark.json")))
    group, function, value = id.values_at("group_id", "function_id", "value_str")
    ((groups[group] ||= {})[function] ||= {})[value] = JSON.parse(File.read(path)).dig("median", "point_estimate")
  end
end

def criterion(mode)
  FileUtils.rm_rf("target/criterion")
  run({ "CRITERION_HOME" => File.expand_path("target/criterion") }, *CARGO_BENCH, "core", "--", *(mode == "quick" ? %w[--quick --noplot] : []))
  puts "Criterion, medians, elapsed time#{"; plots in target/criterion/report/index.html" unless mode == "quick"}.", ""
  estimates.sort.each do |group, functions|
    puts "## #{group}", ""
    values = functions.values.flat_map(&:keys).uniq.sort_by(&:to_i)
    rows = functions.map { |name, figures| [name, *values.map { figures[_1] ? nanoseconds(figures[_1]) : "" }] }
    table(["", *values.map { _1 || "time" }], rows)
  end
end

mode = ARGV.first
abort "bin/bench core [quick|full]" unless [nil, "quick", "full"].include?(mode)
require "fileutils"
cpu = File.foreach("/proc/cpuinfo").grep(/model name/).first.to_s.split(": ").last.to_s.strip
puts "# The core, #{run("rustc", "--version").split[0, 2].join(" ")}, Linux #{run("uname", "-r").strip}, #{cpu}", ""
figures = paired_comparison
cycles(figures)
claims(figures)
instruction_counts(figures.keys.reject { _1.include?("io_uring") })
criterion(mode) if mode

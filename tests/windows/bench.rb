# frozen_string_literal: true

# Workloads of bin/bench on Windows' Ruby under Wine: iocp beside threads, interleaved, each sample a process of its
# own, on one core. Wine's calls are dearer than Windows', so only the ratios say something.
#
#   tests/tree tests/windows/build_extension && cargo build --release -p reactor-benches --bin http_load
#   tests/tree ruby tests/windows/bench.rb [ROUNDS [ROW…]]
require "json"
require "open3"
require "tmpdir"

ROOT = File.expand_path("../..", __dir__)
RUBY = Dir["#{ENV.fetch("REACTOR_CACHE")}/windows/ruby-*/bin/ruby.exe"].max_by { |path| File.mtime(path) }
MODES = %w[iocp threads].freeze
# Operations of each row, and what one of them is. "racket N" is a ping beside N parked fibers.
ROWS = {
  "tcp_echo" => [10_000], "racket 100" => [3_000, 100], "racket 1000" => [3_000, 1_000], "spawn" => [100_000],
  "queue_thread" => [20_000], "http" => [10_000]
}.freeze

# Wine's server is a process of its own. Beside idle cores each of its answers waits until a core wakes: an echo took ten times as long.
COMMAND = [{ "WINEDEBUG" => "-all" }, "taskset", "-c", "0", "wine", RUBY, "-I#{ROOT}/tmp/windows/lib", "-I#{ROOT}/lib"].freeze

# @return [Array(Float, Float)] operations per second, and CPU microseconds per operation
def workload(name, mode, operations, point)
  style = mode == "threads" ? "threads" : "fibers"
  environment, *command = COMMAND
  output, status = Open3.capture2(environment.merge("REACTOR_BACKEND" => mode), *command, "#{ROOT}/bench/harness/worker.rb", name, style,
                                  "#{ROOT}/bench/schedulers/reactor.rb", operations.to_s, *point&.to_s, err: File::NULL)
  raise "#{name} failed on #{mode}" unless status.success?

  answer = JSON.parse(output.lines.last, symbolize_names: true)
  [answer[:operations] / answer[:seconds], answer[:cpu] / answer[:operations] * 1e6]
end

# The load comes from a program of Linux, over the same loopback.
def http(mode, requests)
  environment, *command = COMMAND
  reader, writer = IO.pipe
  pid = Process.spawn(environment, *command, "#{ROOT}/examples/http_server.rb", mode, out: writer, err: File::NULL, pgroup: true)
  port = reader.gets[/:(\d+)\s*$/, 1]
  output, = Open3.capture2("#{ROOT}/target/release/http_load", "127.0.0.1:#{port}", "64", requests.to_s, "keep-alive")
  answer = JSON.parse(output, symbolize_names: true)
  [answer.fetch(:requests) / answer.fetch(:seconds), nil]
ensure
  Process.kill("KILL", -pid) if pid
end

median = ->(values) { values.compact.sort[values.compact.size / 2] }
rounds = (ARGV.shift || 3).to_i
names = ARGV.empty? ? ROWS.keys : ARGV
samples = Hash.new { |hash, key| hash[key] = [] }
rounds.times do |round|
  names.product(MODES.rotate(round)).each do |name, mode|
    operations, point = ROWS.fetch(name)
    samples[[name, mode]] << (name == "http" ? http(mode, operations) : workload(name.split.first, mode, operations, point))
    warn "#{name} #{mode}: #{samples[[name, mode]].last.inspect}"
  end
end
names.each do |name|
  rates = MODES.to_h { |mode| [mode, median.call(samples[[name, mode]].map(&:first))] }
  cpu = MODES.map { |mode| median.call(samples[[name, mode]].map(&:last))&.round(1) }
  ratios = rates.map { |mode, rate| format("%<mode>s %<rate>.0f/s (%<ratio>.2f)", mode:, rate:, ratio: rate / rates["threads"]) }
  puts "#{name}: #{ratios.join(", ")}; CPU us #{cpu.compact.join(" ")}"
end

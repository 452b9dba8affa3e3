# frozen_string_literal: true

require "json"
require "open3"
require "rbconfig"
require "socket"

# What the measurements share. Each sample is a process of its own, rounds are interleaved, medians are reported.
module Bench
  RUBY = [RbConfig.ruby, "-w", "-Ilib"].freeze
  # Seconds for one row, its server's start and end included. The slowest row that was seen took 21 s, beside other work.
  ROW_LIMIT = 300
  LOAD = File.expand_path("../target/release/http_load", __dir__)

  module_function

  # Runs a script in its own process and returns the JSON on its last line.
  def sample(script, *arguments, environment: {})
    output, status = Open3.capture2(environment, *RUBY, script, *arguments.map(&:to_s))
    raise "#{script} #{arguments.join(' ')} failed: #{status}" unless status.success?

    JSON.parse(output.lines.last, symbolize_names: true)
  end

  def median(values)
    sorted = values.sort
    middle = sorted.size / 2
    sorted.size.odd? ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2.0
  end

  def latencies(values)
    sorted = values.sort
    at = ->(share) { sorted[((sorted.size - 1) * share).round] }
    { p50: at[0.5], p99: at[0.99], p999: at[0.999], max: sorted.last }
  end

  # Rows of A B C A B C …: yields each target once a round; returns its samples by target. Where targets are [row, mode], each
  # mode of a row is the first of its row in turn, for what comes first may be dearer: A B C, B C A, C A B.
  def interleave(targets, rounds:)
    samples = Hash.new { |hash, target| hash[target] = [] }
    rows = targets.chunk_while { |one, other| Array(one)[0..-2] == Array(other)[0..-2] }.to_a
    rounds.times do |round|
      rows.flat_map { |modes| modes.rotate(round) }.each do |target|
        progress "round #{round + 1}/#{rounds}: #{Array(target).join(' ')}"
        samples[target] << yield(target)
      end
    end
    progress nil
    samples
  end

  def progress(text)
    return unless $stderr.tty?

    $stderr.print "\r\e[K", text
  end

  # A Markdown table: the first column to the left, all further ones to the right.
  def table(header, rows)
    cells = [header, *rows].map { |row| row.map(&:to_s) }
    widths = cells.transpose.map { |column| column.map(&:size).max }
    lines = cells.map do |row|
      "| #{row.each_with_index.map { |cell, i| i.zero? ? cell.ljust(widths[i]) : cell.rjust(widths[i]) }.join(' | ')} |"
    end
    rule = widths.each_with_index.map { |width, i| i.zero? ? "-" * width : "#{'-' * (width - 1)}:" }
    lines.insert(1, "| #{rule.join(' | ')} |")
    puts lines
  end

  def about
    require "reactor"
    "Ruby #{RUBY_VERSION}#{' +YJIT' if defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled?}, " \
      "#{`uname -sr`.strip}, backend #{Reactor.backend}"
  end

  # Descriptors this process may hold, up to `wanted`. Windows has no such limit.
  def descriptors(wanted)
    return wanted unless Process.respond_to?(:getrlimit)

    soft, hard = Process.getrlimit(:NOFILE)
    if soft < wanted
      Process.setrlimit(:NOFILE, [wanted, hard].min, hard)
      soft = [wanted, hard].min
    end
    soft
  end

  # A server of examples/http_server.rb in its own process. Yields its port; returns what it printed when stopped.
  # `wrapper` is put before the command (strace). After `limit` seconds the server is killed, which ends the load as well.
  # @raise [RuntimeError] if the server was killed or left no account
  def with_server(mode, body_bytes: 0, wrapper: [], limit: ROW_LIMIT)
    command = [*wrapper, *RUBY, "examples/http_server.rb", mode, "0", body_bytes.to_s]
    reader, writer = IO.pipe
    pid = group = Process.spawn(*command, out: writer, pgroup: true)
    writer.close
    step = "start"
    overdue = nil
    watchdog = Thread.new do
      sleep limit
      overdue = step
      Process.kill("KILL", -group)
    rescue Errno::ESRCH
      nil # it has just ended
    end
    port = reader.gets.to_s[/\d+$/] or raise "the server printed no port"
    step = "load"
    yield port.to_i
    step = "end"
    Process.kill("TERM", -pid)
    answer = reader.read
    Process.wait(pid)
    pid = nil
    JSON.parse(answer.lines.last || raise("the server printed no account"), symbolize_names: true)
  rescue StandardError => error
    raise error unless overdue

    raise "the server #{mode} was killed after #{limit} s, at its #{overdue} (#{error.message})"
  ensure
    watchdog&.kill&.join
    if pid
      Process.kill("KILL", -pid)
      Process.wait(pid)
    end
    reader&.close
  end

  # Drives load at a server; returns the generator's account.
  def load(port, connections:, requests:, mode:)
    output, status = Open3.capture2(LOAD, "127.0.0.1:#{port}", connections.to_s, requests.to_s, mode)
    raise "load generator failed: #{status}" unless status.success?

    JSON.parse(output, symbolize_names: true)
  end
end

# frozen_string_literal: true

require "json"
require "open3"
require "rbconfig"
require "socket"

# What the measurements share. Each sample is a process of its own, rounds are interleaved, medians are reported.
module Bench
  # Fibers of a scheduler on a backend, or threads.
  class Tasks
    # @param target [String] a backend, or "threads"
    def initialize(target)
      return @threads = [] if target == "threads"

      require "reactor"
      Fiber.set_scheduler(@scheduler = Reactor::Scheduler.new(backend: target))
    end

    def start(&) = @threads ? @threads << Thread.new(&) : Fiber.schedule(&)

    # Lets others run.
    def pass = @threads ? Thread.pass : @scheduler.yield

    # Waits for all of them.
    def finish = @threads ? @threads.each(&:join) : @scheduler.run

    # Runs count tasks, and waits for these.
    def together(count)
      left = Thread::Queue.new
      count.times { |index| start { yield(index); left << index } }
      count.times { left.pop }
    end
  end

  RUBY = [RbConfig.ruby, "-w", "-Ilib"].freeze

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

  # Lets this process have so many descriptors, if it may. Windows has no such limit.
  def descriptors(wanted)
    return unless Process.respond_to?(:getrlimit)

    soft, hard = Process.getrlimit(:NOFILE)
    Process.setrlimit(:NOFILE, [wanted, hard].min, hard) if soft < wanted
  end
end

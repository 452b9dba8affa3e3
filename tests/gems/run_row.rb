# frozen_string_literal: true

# Runs one row in this process, and prints what it measured as JSON:
#   ruby run_row.rb NAME MODE PORT DIRECTORY BESIDE [untimed]
# MODE: threads; plain (fibers of the native scheduler); set (with the setting of the row); offload (each call in Reactor.offload).

require "json"
require "reactor"
require "socket"
require_relative "gate"
require_relative "row"

# Twenty operations at once, twice: until all have begun, then of 0.2 s each.
class RowRun
  COUNT = 20
  # Between two looks at the clock.
  TICK = 0.001

  def initialize(row, mode, context, timed)
    @row, @mode, @context, @timed = row, mode, context, timed
    @lateness = 0.0
  end

  def result
    $VERBOSE = nil # a library's own warnings
    @row.requires.each { |library| require library }
    instance = @context
    instance.instance_exec(&@row.set) if @mode == :set && @row.set
    instance.instance_exec(&@row.prepare) if @row.prepare
    @mode == :threads ? measure : in_scheduler { measure }
    { seconds: @seconds, lateness: @lateness, errors: @errors, version: version }
  end

  private

  def version = Gem.loaded_specs[@row.gem]&.version&.to_s || Gem::Specification.find_by_name(@row.gem).version.to_s

  def in_scheduler
    Thread.new do
      Fiber.set_scheduler(@mode == :set && @row.scheduler ? @row.scheduler.call : Reactor::Scheduler.new(workers: COUNT))
      Fiber.schedule { yield }
    end.join
  end

  def measure
    connections = []
    @errors = []
    @errors |= all { |i| connections[i] = @context.instance_exec(i, &@row.open) } if @row.open
    @errors |= all { |i| call(connections[i], i) }
    ticking { @seconds = elapsed { @errors |= all { |i| call(connections[i], i) } } } if @timed
    @errors |= all { |i| @context.instance_exec(connections[i], i, &@row.close) } if @row.close
  end

  def call(connection, number)
    work = -> { @context.instance_exec(connection, number, &@row.call) }
    @mode == :offload ? Reactor.offload(&work) : work.call
  end

  # Runs the block in COUNT tasks at once. Returns the errors.
  def all
    ended = Thread::Queue.new
    COUNT.times do |i|
      @context.task do
        yield i
        ended << nil
      rescue Exception => error # rubocop:disable Lint/RescueException -- is reported
        ended << "#{error.class}: #{error.message}"[0, 300]
      end
    end
    Array.new(COUNT) { ended.pop }.compact.uniq
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def elapsed
    start = now
    yield
    now - start
  end

  # How late a sleep of a millisecond ends at most.
  def ticking
    over = false
    ended = Thread::Queue.new
    @context.task do
      until over
        slept = elapsed { sleep TICK }
        @lateness = [@lateness, slept - TICK].max
      end
      ended << true
    end
    yield
  ensure
    over = true
    ended&.pop
  end
end

if $PROGRAM_NAME == __FILE__
  name, mode, port, directory, beside, untimed = ARGV
  Gems.load_rows
  context = Gems::Context.new(mode.to_sym, port.to_i, directory, beside.to_i)
  $stdout.puts RowRun.new(Gems.find(name), mode.to_sym, context, untimed.nil?).result.to_json
end

# frozen_string_literal: true

# Runs one row in this process, and prints what it measured as JSON:
#   ruby run_row.rb NAME MODE PORT DIRECTORY BESIDE
# MODE: plain (fibers of the native scheduler); set (with the setting of the row); offload (each call in Reactor.offload).

require "json"
require "reactor"
require "socket"
require_relative "gate"
require_relative "row"

# Twenty operations at once.
class RowRun
  COUNT = 20

  def initialize(row, mode, context)
    @row, @mode, @context = row, mode, context
  end

  def result
    $VERBOSE = nil # a library's own warnings
    @row.requires.each { |library| require library }
    @context.instance_exec(&@row.set) if @mode == :set && @row.set
    @context.instance_exec(&@row.prepare) if @row.prepare
    in_scheduler { measure }
    { errors: @errors, version: version }
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
      Fiber.schedule do
        yield i
        ended << nil
      rescue Exception => error # rubocop:disable Lint/RescueException -- is reported
        ended << "#{error.class}: #{error.message}"[0, 300]
      end
    end
    Array.new(COUNT) { ended.pop }.compact.uniq
  end
end

if $PROGRAM_NAME == __FILE__
  name, mode, port, directory, beside = ARGV
  Gems.load_rows
  context = Gems::Context.new(mode.to_sym, port.to_i, directory, beside.to_i)
  $stdout.puts RowRun.new(Gems.find(name), mode.to_sym, context).result.to_json
end

# frozen_string_literal: true

require "rbconfig"
require "tmpdir"
require_relative "generator"
require_relative "../ruby/platform"
require_relative "../ruby/seeds"
require_relative "../ruby/time_limit"

# bin/check wild: see there. Each backend runs the same calls in processes of its own.
module Wild
  ROOT = File.expand_path("../..", __dir__)

  # Some of the calls on one backend, in a process and, after each call that fails, in another.
  class Run
    # Seconds after which a call hangs.
    HANG = 60
    # Seconds between two looks at a process.
    PAUSE = 0.2

    # How many calls have been made.
    attr_reader :backend, :made

    def initialize(backend, seed, calls, directory)
      @backend = backend
      @seed = seed
      @calls = calls
      @place, @file = %w[place wrong].map { |kind| File.join(directory, "#{backend}.#{calls.begin}.#{kind}") }
      @made = 0
    end

    def run(seeds)
      File.binwrite(@place, [@calls.begin].pack("Q>"))
      until (from = @calls.begin + @made) == @calls.end || seeds.over?
        ended = process(from, @calls.end)
        wrong = read
        wrong << failure(from) unless ended
        wrong.each { |number, what| seeds.failed("#{@backend}: #{what.sub(/ by .*/, "")}", number) }
        @made = (ended ? @calls.end : place + 1) - @calls.begin
      end
    end

    private

    def process(from, to)
      File.write(@file, "")
      arguments = [RbConfig.ruby, "-I", File.join(ROOT, "lib"), File.join(__dir__, "child.rb"), @backend, @seed.to_s, from.to_s, to.to_s, @place, @file]
      Dir.mktmpdir("wild") do |folder|
        watch(Process.spawn(*arguments, in: File::NULL, out: File::NULL, chdir: folder, **Platform::OWN_GROUP))
      end
    end

    # Whether it came to its end.
    def watch(pid)
      at = limit = nil
      loop do
        _, status = Process.wait2(pid, Process::WNOHANG)
        if status
          @why = status.signaled? ? "crashed (signal #{status.termsig})" : "ended with #{status.exitstatus}"
          return status.success?
        end
        at, limit = place, TimeLimit.new(HANG, pid, extension: 3) if place != at
        sleep PAUSE
        next unless limit.over?

        @why = "hung"
        Process.kill(:KILL, Platform::WINDOWS ? pid : -pid)
        Process.wait(pid)
        return false
      end
    end

    # The number of the call at which the process was.
    def place = File.binread(@place).unpack1("Q>")

    # @return [Array] what went wrong: [number of the call, what]
    def read
      File.foreach(@file, chomp: true).filter_map do |line|
        number, what = line.split(" ", 2)
        next [Integer(number), what] unless number == "failure"

        @why = what
        nil
      end
    end

    # As those, for the call at which the process has ended.
    def failure(from)
      at, why = place, @why
      why += " (not alone; after calls #{from}...#{at})" if process(at, at + 1)
      warn "#{@backend}: #{why}: call #{at}"
      [at, why]
    end
  end

  PER_PROCESS = 10_000
  # After so many failures there is enough to read.
  ENOUGH = 20

  module_function

  # @return [Boolean] whether nothing is wrong
  def main(arguments)
    options = Seeds.options(arguments, "calls", count: 20_000, first: 0, jobs: 1, backends: nil) do |parser|
      parser.on("--first N", Integer, "number of the first call")
    end
    seed, first, count, jobs, backends = options.values_at(:seed, :first, :count, :jobs, :backends)
    parts = (first...(first + count)).each_slice([(count + jobs - 1) / jobs, PER_PROCESS].min.clamp(1..)).map { |part| part.first...(part.last + 1) }
    Dir.mktmpdir("wild") do |directory|
      # A call waits more than it computes, so parts of the calls run side by side.
      runs = parts.product(backends).map { |part, backend| Run.new(backend, seed, part, directory) }
      seeds = Seeds.new(count: runs.size, seconds: options[:seconds], jobs: jobs * backends.size, enough: ENOUGH * backends.size)
      Signal.trap(:INT) { seeds.stop } # the report tells what has been made
      sound = seeds.run { |number| runs[number].run(seeds) }
      puts seeds.report { |call| "\n#{program(Generator.new(seed).call(call))}" }
      puts "Ruby #{RUBY_VERSION}, seed #{seed}: calls #{made(runs)}#{"; something is wrong" unless sound}"
      sound
    end
  end

  def program(call)
    "  require \"reactor\"\n  require \"./tests/wild/world\"\n  Wild.call(<<~'CALL')\n#{call.gsub(/^/, "    ")}\n  CALL"
  end

  def made(runs) = runs.group_by(&:backend).map { |backend, parts| "#{backend} #{parts.sum(&:made)}" }.join(", ")
end

exit Wild.main(ARGV) if $PROGRAM_NAME == __FILE__

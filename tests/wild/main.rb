# frozen_string_literal: true

require "optparse"
require "rbconfig"
require "tmpdir"
require_relative "disk"
require_relative "generator"
require_relative "../ruby/platform"

# bin/check wild: see there. Each backend runs the same calls in processes of its own.
module Wild
  ROOT = File.expand_path("../..", __dir__)

  # Calls on one backend, in processes that may crash or hang.
  class Run
    PER_PROCESS = 10_000
    # Seconds after which a call hangs.
    HANG = 60
    # Seconds between two looks at a process.
    PAUSE = 0.2
    # After so many failures there is enough to read.
    ENOUGH = 20

    # What went wrong: [number of the call, what].
    attr_reader :backend, :failures

    # @param seconds [Numeric] after which no other process begins
    def initialize(backend, seed, calls, seconds, directory)
      @backend = backend
      @seed = seed
      @limit = now + seconds
      @from = calls.begin
      @calls = calls
      @place, @file = %w[place wrong].map { |kind| File.join(directory, "#{backend}.#{calls.begin}.#{kind}") }
      File.binwrite(@place, "\0" * 8)
      @failures = []
    end

    def run
      while @from < @calls.end && @failures.size < ENOUGH && now < @limit
        to = [@from + PER_PROCESS, @calls.end].min
        ended = process(@from, to)
        read
        @from = ended ? to : failed
      end
    end

    # No other process begins. Those that run end at their last call.
    def stop = @limit = now

    # @return [Integer] calls made so far
    def made = [place, @from].max - @calls.begin

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
      at, since = place, now
      loop do
        _, status = Process.wait2(pid, Process::WNOHANG)
        if status
          @why = status.signaled? ? "crashed (signal #{status.termsig})" : "ended with #{status.exitstatus}"
          return status.success?
        end
        sleep PAUSE
        at, since = place, now if place != at || (now - since > HANG && Disk.busy?(pid))
        next if now - since < HANG

        @why = "hung"
        Process.kill(:KILL, Platform::WINDOWS ? pid : -pid)
        Process.wait(pid)
        return false
      end
    end

    # The number of the call at which the process was.
    def place = File.binread(@place).unpack1("Q>")

    def read
      File.foreach(@file, chomp: true) do |line|
        number, what = line.split(" ", 2)
        number == "failure" ? @why = what : @failures << [Integer(number), what]
      end
    end

    # @return [Integer] the call to go on with
    def failed
      at, why = place, @why
      alone = process(at, at + 1) ? " (not alone; after calls #{@from}...#{at})" : ""
      @failures << [at, why + alone]
      warn "#{@backend}: #{@failures.last.last}: call #{at}"
      at + 1
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  module_function

  def main(arguments)
    calls, seed, first, seconds, jobs, chosen = 20_000, rand(1_000_000), 0, Float::INFINITY, 1, nil
    OptionParser.new do |options|
      options.on("--calls N", Integer) { |value| calls = value }
      options.on("--seed N", Integer) { |value| seed = value }
      options.on("--first N", Integer, "number of the first call") { |value| first = value }
      options.on("--seconds N", Integer, "no more calls begin after so many seconds") { |value| seconds = value }
      options.on("--jobs N", Integer, "processes for each backend (1)") { |value| jobs = value }
      options.on("--backends NAMES", "epoll,uring,poll") { |value| chosen = value.split(",") }
    end.parse!(arguments)
    parts = (first...(first + calls)).each_slice([(calls + jobs - 1) / jobs, 1].max).map { |part| part.first..part.last }
    Dir.mktmpdir("wild") do |directory|
      # A call waits more than it computes, so parts of the calls run side by side.
      runs = (chosen || backends).product(parts).map { |backend, part| Run.new(backend, seed, part.begin...(part.end + 1), seconds, directory) }
      Signal.trap(:INT) { runs.each(&:stop) } # the report tells what has been made
      runs.map { |run| Thread.new { run.run } }.each(&:join)
      sound = report(Generator.new(seed), runs)
      puts "Ruby #{RUBY_VERSION}, seed #{seed}: calls #{made(runs)}#{"; something is wrong" unless sound}"
      exit(sound)
    end
  end

  # Prints each kind of failure with its first call.
  #
  # @return [Boolean] whether there is none
  def report(generator, runs)
    found = runs.flat_map { |run| run.failures.map { |number, what| ["#{run.backend}: #{what}", number] } }
    found.group_by { |what, _| what.sub(/ by .*/, "") }.each do |what, same|
      number = same.first.last
      puts "#{what}: #{same.size} calls, the first is #{number}",
           "  require \"reactor\"\n  require \"./tests/wild/world\"\n  Wild.call(<<~'CALL')\n#{generator.call(number).gsub(/^/, "    ")}\n  CALL", ""
    end
    found.empty?
  end

  def made(runs) = runs.group_by(&:backend).map { |backend, parts| "#{backend} #{parts.sum(&:made)}" }.join(", ")

  def backends
    script = "puts Reactor.backends.select { |_, there| there == true }.keys"
    IO.popen([RbConfig.ruby, "-I", File.join(ROOT, "lib"), "-r", "reactor", "-e", script], &:readlines).map(&:chomp)
  end
end

Wild.main(ARGV) if $PROGRAM_NAME == __FILE__

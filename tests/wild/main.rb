# frozen_string_literal: true

require "optparse"
require "rbconfig"
require "tmpdir"
require_relative "disk"
require_relative "generator"

# bin/wild: see there. Each target (a backend, or plain Ruby) runs the same calls in processes of its own.
module Wild
  ROOT = File.expand_path("../..", __dir__)

  # The calls of one target, in processes that may crash or hang.
  class Run
    PER_PROCESS = 10_000
    # Seconds after which a call hangs.
    HANG = 60
    # Seconds between two looks at a process.
    PAUSE = 0.2

    attr_reader :outcomes, :failures

    # @param seconds [Numeric] after which no other process begins
    def initialize(target, seed, calls, seconds, directory)
      @target = target
      @seed = seed
      @limit = now + seconds
      @calls = calls
      @place = File.join(directory, "#{target}.#{calls.begin}.place")
      @file = File.join(directory, "#{target}.#{calls.begin}.outcomes")
      File.binwrite(@place, "\0" * 8)
      @outcomes = {} # by the number of the call
      @failures = []
    end

    # @return [self]
    def run
      @from = @calls.begin
      while @from < @calls.end && @failures.size < 20 && now < @limit
        to = [@from + PER_PROCESS, @calls.end].min
        ended = process(@from, to)
        read
        @from = ended ? to : failed(@from)
      end
      self
    end

    # No other process begins. Those that run end at their last call.
    def stop = @limit = now

    # @return [Integer] calls made so far
    def made = [place, @from || 0, @calls.begin].max - @calls.begin

    private

    def process(from, to)
      File.write(@file, "")
      arguments = [RbConfig.ruby, "-I", File.join(ROOT, "lib"), File.join(__dir__, "child.rb"), @target, @seed.to_s, from.to_s, to.to_s, @place, @file]
      Dir.mktmpdir("wild") do |folder|
        watch(Process.spawn(*arguments, in: File::NULL, out: File::NULL, chdir: folder, pgroup: true))
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
        Process.kill(:KILL, -pid)
        Process.wait(pid)
        return false
      end
    end

    # The number of the call at which the process was.
    def place = File.binread(@place).unpack1("Q>")

    def read
      File.foreach(@file, chomp: true) do |line|
        number, outcome = line.split(" ", 2)
        number == "failure" ? @why = outcome : @outcomes[Integer(number)] = -outcome
      end
    end

    # @return [Integer] the call to go on with
    def failed(from)
      at, why = place, @why
      alone = process(at, at + 1) ? " (not alone; after calls #{from}...#{at})" : ""
      @failures << [at, "#{@target}: #{why}#{alone}"]
      warn "#{@failures.last.last}: call #{at}"
      at + 1
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  # The calls of one target, in parts that run side by side: a call waits more than it computes.
  class Parts
    def initialize(target, seed, calls, seconds, jobs, directory)
      @target = target
      size = [(calls.size + jobs - 1) / jobs, 1].max
      @total = calls.size
      @runs = calls.each_slice(size).map { |part| Run.new(target, seed, part.first...(part.last + 1), seconds, directory) }
    end

    # @return [self]
    def run
      @runs.map { |run| Thread.new { run.run } }.each(&:join)
      self
    end

    def stop = @runs.each(&:stop)

    def outcomes = @outcomes ||= @runs.map(&:outcomes).reduce(:merge)

    def failures = @runs.flat_map(&:failures)

    def progress = "#{@target} #{@runs.sum(&:made)} of #{@total}"
  end

  # Compares the outcomes of the targets, and prints what is wrong.
  class Report
    # Errors that no call may end with: they are raised by code that took an argument for something else, or by a panic.
    WRONG = /\Araised (?:NoMethodError|NameError|LocalJumpError|SystemStackError|NoMemoryError|fatal|ZeroDivisionError|FrozenError at .*lib.reactor)\b/

    def initialize(seed, runs, compare)
      @compare = compare
      @generator = Generator.new(seed)
      @runs = runs # by target
      @groups = Hash.new { |groups, key| groups[key] = [] } # what is wrong => numbers of calls
    end

    # @return [Boolean] whether nothing is wrong
    def print
      collect
      @groups.each do |(what), numbers|
        puts "#{what}: #{numbers.size} calls, the first is #{numbers.first}", program(numbers.first), ""
      end
      failures = @runs.values.flat_map(&:failures)
      failures.reject! { |_, what| what.start_with?("plain") } # the VM itself crashes
      failures.each { |number, what| puts "#{what}: call #{number}", program(number), "" }
      @groups.empty? && failures.empty?
    end

    private

    def collect
      schedulers = @runs.keys - ["plain"]
      @runs[schedulers.first].outcomes.each_key do |number|
        outcomes = @runs.transform_values { |run| run.outcomes[number] }.compact
        next unless @compare || outcomes.each_value.any? { |outcome| ours?(outcome) }

        outcomes.delete_if { |_, outcome| outcome == "skipped" }
        text = @generator.call(number).last
        next if text.include?("unborn")

        outcomes.each { |target, outcome| @groups[["#{target}: #{outcome.sub(/ by .*/, "")}"]] << number if target != "plain" && ours?(outcome) }
        outcomes = outcomes.transform_values { |outcome| comparable(outcome, outcomes.key?("plain")) }
        next if outcomes.values.uniq.size <= 1 || by_chance?(text) || !@compare

        @groups[["#{outcomes.map { |target, outcome| "#{target}: #{outcome}" }.join(", ")} in #{method_of(text)}"]] << number
      end
    end

    # Which of several bad arguments a hook looks at first is not fixed. Against plain Ruby the class is compared.
    def comparable(outcome, plain)
      outcome = outcome[/\A(?:raised|value) \S+/] || outcome
      plain ? outcome : outcome.sub(/\Araised (?:TypeError|ArgumentError|RangeError|FloatDomainError|NoMethodError|Wild::Raised|UncaughtThrowError)\z/, "raised an error of its arguments")
    end

    # A mistake of an object that was passed, or of the call itself, is none of the library's. Ruby's own sleep multiplies the
    # fraction that divmod gave, whatever that is.
    def ours?(outcome)
      return false if outcome.match?(/undefined method [`'](?:call|write|read|\*)' for|(?:for an instance of|for #<) ?BasicObject|no block given \(yield\)/)

      outcome.match?(WRONG) && outcome.match?(%r{lib/reactor|fatal})
    end

    # The outcome depends on which thread comes first.
    def by_chance?(text) = text.match?(/Thread\.(?:new|pass)|nonblock = false|timeout = 0.0001|object_id|GC|unborn/)

    # The method that is called, wherever that is.
    def method_of(text)
      call = text.lines.last
      call[/\b(?:s|poller|selector|closed_scheduler|unborn_scheduler)\.\w+/] || call[/\b(?:io|buffer)\.\w+|[A-Z][\w:]+\.\w+|\w+/]
    end

    def program(number) = "  require \"reactor\"\n  require \"./tests/wild/world\"\n  Wild.call(<<~'CALL')\n#{@generator.call(number).last.gsub(/^/, "    ")}\n  CALL"
  end

  module_function

  def main(arguments)
    calls, seed, first, seconds, jobs, targets, compare = 20_000, rand(1_000_000), 0, Float::INFINITY, 1, nil, false
    OptionParser.new do |options|
      options.on("--calls N", Integer) { |value| calls = value }
      options.on("--seed N", Integer) { |value| seed = value }
      options.on("--first N", Integer, "number of the first call") { |value| first = value }
      options.on("--seconds N", Integer, "no more calls begin after so many seconds") { |value| seconds = value }
      options.on("--jobs N", Integer, "processes for each backend (1)") { |value| jobs = value }
      options.on("--backends NAMES", "epoll,uring,select; with plain: the calls of plain Ruby are compared as well") { |value| targets = value.split(",") }
      options.on("--compare", "prints which outcomes differ between the backends, and from plain Ruby") { compare = true }
      options.on("--call N", Integer, "prints one call") { |value| return puts(Generator.new(seed).call(value)) }
    end.parse!(arguments)
    targets ||= [*("plain" if compare), *backends]
    Dir.mktmpdir("wild") do |directory|
      runs = targets.to_h { |target| [target, Parts.new(target, seed, first...(first + calls), seconds, jobs, directory)] }
      Signal.trap(:INT) { runs.each_value(&:stop) } # the report tells what has been made
      with_progress(runs.values) { runs.values.map { |run| Thread.new { run.run } }.each(&:join) }
      sound = Report.new(seed, runs, compare).print
      counts = runs.map { |target, run| "#{target} #{run.outcomes.count { |_, outcome| outcome != "skipped" }}" }
      puts "Ruby #{RUBY_VERSION}, seed #{seed}: calls #{counts.join(", ")}#{"; something is wrong" unless sound}"
      exit(sound)
    end
  end

  # Says on $stderr every minute how far the runs are.
  def with_progress(runs)
    teller = Thread.new do
      loop do
        sleep 60
        warn runs.map(&:progress).join(", ")
      end
    end
    yield
  ensure
    teller.kill
  end

  def backends
    script = "puts Reactor.backends.select { |_, there| there == true }.keys"
    IO.popen([RbConfig.ruby, "-I", File.join(ROOT, "lib"), "-r", "reactor", "-e", script], &:readlines).map(&:chomp)
  end
end

Wild.main(ARGV) if $PROGRAM_NAME == __FILE__

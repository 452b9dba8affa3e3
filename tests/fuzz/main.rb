# frozen_string_literal: true

# Runs random programs on threads and on the backends: see bin/check fuzz.

require "etc"
require "optparse"
require_relative "generator"
require_relative "known"
require_relative "runner"
require_relative "shrinker"

module Fuzz
  class Main
    SHRINK_LIMIT = 90 # seconds
    MOST = 10 # differences, after which no other program begins
    # Seconds until a smaller program counts as hung. The smallest one is run again with the whole limit.
    SHRINK_BASE = 1
    REPEATS = 5

    Options = Struct.new(:seed, :seconds, :programs, :backends, :program, :jobs, keyword_init: true)

    def self.options(arguments)
      options = Options.new(seed: Random.new_seed % 1_000_000, seconds: nil, backends: nil, jobs: Etc.nprocessors)
      OptionParser.new do |parser|
        parser.banner = "bin/check fuzz [options]"
        parser.on("--seed N", Integer, "the first program's seed; the next program has the next number") { |value| options.seed = value }
        parser.on("--seconds N", Float, "stop after this time (default: 60)") { |value| options.seconds = value }
        parser.on("--programs N", Integer, "stop after this many programs") { |value| options.programs = value }
        parser.on("--backends A,B", Array, "these only (default: those that work here)") { |value| options.backends = value }
        parser.on("--program FILE", "run and shrink this program, as JSON") { |value| options.program = Program.parse(File.read(value)) }
        parser.on("--jobs N", Integer, "this many programs at a time") { |value| options.jobs = value }
      end.parse!(arguments)
      options.seconds ||= options.programs ? Float::INFINITY : 60
      options
    end

    def initialize(options, out = $stdout)
      @options = options
      @out = out
      @backends = options.backends || available
      @known = Known.new
      @lock = Mutex.new
      @counts = Hash.new(0)
      @found = {} # by backend and source: what first led to it
      @next = options.seed
      @started = now
      @end = @started + options.seconds
    end

    # @return [Boolean] whether no difference came again that has no explanation
    def run
      say "fuzz: Ruby #{RUBY_VERSION}, threads against #{@backends.join(", ")}, --seed #{@options.seed}"
      jobs = @options.program ? 1 : @options.jobs
      Array.new(jobs) { Thread.new { work } }.each(&:join)
      say "fuzz on Ruby #{RUBY_VERSION}: #{@counts[:programs]} programs (--seed #{@options.seed} to #{@next - 1}), #{@counts[:differences]} differences, " \
          "#{@counts[:known]} known, #{@counts[:rare]} that did not come again, #{@counts[:undetermined]} programs that differ on threads from run to run"
      @counts[:differences].zero?
    end

    private

    def available
      text = IO.popen([RbConfig.ruby, "-I", File.join(WorkerProcess::ROOT, "lib"), "-r", "reactor", "-e",
                       "print Reactor.backends.select { |_, answer| answer == true }.keys.join(\",\")"], &:read)
      text.split(",")
    end

    def work
      runner = Runner.new(@backends)
      return one(runner, @options.program, nil) if @options.program

      while (seed = take)
        one(runner, Generator.program(seed), seed)
      end
    ensure
      runner&.close
    end

    def take
      @lock.synchronize do
        return if now > @end || @counts[:differences] >= MOST || (@options.programs && @counts[:programs] >= @options.programs)

        (@next += 1) - 1
      end
    end

    def one(runner, program, seed)
      count(:programs)
      differences = runner.differences(program)
      return count(:undetermined) unless differences

      differences.each { |difference| examine(runner, difference, seed) }
    end

    def examine(runner, difference, seed)
      found = (now - @started).round
      times = runner.repeated(difference, REPEATS)
      return count(:undetermined) unless times
      return rare(difference, seed) if times.zero?

      return if difference.kind == :hang && known?(difference, seed) # to shrink a hang takes long

      smallest, times = shrunk(runner, difference, times)
      return if known?(smallest, seed)

      source = Printer.source(smallest.program)
      first = @lock.synchronize { @found[[smallest.backend, source]] ||= label(seed) }
      return say("again: #{label(seed)}, #{smallest.backend}: the same program as of #{first}") unless first == label(seed)

      count(:differences)
      report(smallest, seed, times, found)
    end

    def known?(difference, seed)
      return false unless (reason = @known.reason(difference, Printer.source(difference.program)))

      count(:known)
      say("known: #{label(seed)}, #{difference.backend}: #{reason}")
      true
    end

    # The smallest program that differs from threads in the same way, again and again.
    def shrunk(runner, difference, times)
      found = []
      Shrinker.new(SHRINK_LIMIT) do |candidate|
        other = runner.differences(candidate, [difference.backend], base: SHRINK_BASE)&.find { |one| one.kind == difference.kind }
        found << other if other
      end.smallest(difference.program)
      found.reverse.first(3).each do |smaller|
        smaller.limit = difference.limit
        again = runner.repeated(smaller, REPEATS)
        return [smaller, again] if again&.positive?
      end
      [difference, times]
    end

    def rare(difference, seed)
      count(:rare)
      say "#{label(seed)}, #{difference.backend}: differed once, and in none of #{REPEATS} runs after it\n  threads: #{difference.expected}\n  " \
          "#{difference.backend}: #{difference.actual}"
    end

    def report(difference, seed, times, found)
      say "difference: #{label(seed)} on Ruby #{RUBY_VERSION}, #{difference.backend}, #{difference.kind}, found after #{found} s, " \
          "shrunk after #{(now - @started).round} s; it came again #{times} times in #{REPEATS}",
          "threads: #{difference.expected}", "#{difference.backend}: #{difference.actual}", Printer.source(difference.program), "program: #{difference.program}"
    end

    def label(seed) = seed ? "--seed #{seed}" : "the program"
    def count(what) = @lock.synchronize { @counts[what] += 1 }
    def say(*lines) = @lock.synchronize { @out.puts(lines); @out.flush }
    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end

exit Fuzz::Main.new(Fuzz::Main.options(ARGV)).run if $PROGRAM_NAME == __FILE__

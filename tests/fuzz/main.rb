# frozen_string_literal: true

# Runs random programs on threads and on the backends: see bin/check fuzz.

require "etc"
require_relative "generator"
require_relative "known"
require_relative "runner"
require_relative "shrinker"
require_relative "../ruby/seeds"

module Fuzz
  class Main
    SHRINK_LIMIT = 90 # seconds
    MOST = 10 # differences, after which no other program begins
    # Seconds until a smaller program counts as hung. The smallest one is run again with the whole limit.
    SHRINK_BASE = 1
    REPEATS = 5

    # @return [Hash] see {Seeds.options}
    def self.options(arguments)
      Seeds.options(arguments, "programs", jobs: Etc.nprocessors, backends: nil) do |parser|
        parser.on("--program FILE", "run and shrink this program, as JSON") { |file| Program.parse(File.read(file)) }
      end
    end

    def initialize(options, out = $stdout)
      @first, @program, @backends = options.values_at(:seed, :program, :backends)
      @runners = Array.new(options[:jobs]) { Runner.new(@backends) }
      @seeds = Seeds.new(**options, count: @program ? 1 : options[:count])
      @out = out
      @known = Known.new
      @lock = Mutex.new
      @counts = Hash.new(0)
      @started = now
    end

    # @return [Boolean] whether no difference came again that has no explanation
    def run
      say "fuzz: Ruby #{RUBY_VERSION}, threads against #{@backends.join(", ")}, --seed #{@first}"
      @seeds.run { |seed, job| one(@runners[job], @program || Generator.program(seed), seed) }
      say "fuzz on Ruby #{RUBY_VERSION}: #{@seeds.begun} programs (--seed #{@first} to #{@first + @seeds.begun - 1}), #{@seeds.failures.size} differences, " \
          "#{@counts[:known]} known, #{@counts[:rare]} that did not come again, #{@counts[:undetermined]} programs that differ on threads from run to run"
      @seeds.failures.empty?
    ensure
      @runners.each(&:close)
    end

    private

    def one(runner, program, seed)
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

      first = @seeds.failed([smallest.backend, Printer.source(smallest.program)], seed)
      return say("again: #{label(seed)}, #{smallest.backend}: the same program as of #{label(first)}") unless first == seed

      @seeds.stop if @seeds.failures.size >= MOST
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

    def label(seed) = @program ? "the program" : "--seed #{seed}"
    def count(what) = @lock.synchronize { @counts[what] += 1 }
    def say(*lines) = @lock.synchronize { @out.puts(lines); @out.flush }
    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end

exit Fuzz::Main.new(Fuzz::Main.options(ARGV)).run if $PROGRAM_NAME == __FILE__

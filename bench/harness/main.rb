# frozen_string_literal: true

# bin/bench: reads the command line, runs the workloads, writes the results.
require "fileutils"
require "tmpdir"
require_relative "../support"
require_relative "workload"
require_relative "run"
require_relative "format"
require_relative "target"
require_relative "session"
require_relative "calls"
require_relative "plan"
require_relative "progress"
require_relative "options"
require_relative "results"
require_relative "markdown"

module Bench
  # The command, from arguments to exit status.
  class Command
    STOPPED = 130

    def initialize(options)
      @options = options
    end

    # @return [Integer] the exit status
    def call
      case @options.action
      when :help then puts @options.help
      when :list then list
      else return run
      end
      0
    end

    private

    def list
      workloads = @options.workloads
      width = workloads.map { |workload| workload.name.size }.max
      workloads.each do |workload|
        points = workload.axis && "; N = #{workload.points.map { |point| Format.size(point) }.join(', ')} #{workload.axis}"
        puts format("%-#{width}s  %s (%s%s)", workload.name, workload.title, workload.unit, points)
      end
    end

    def run
      build if @options.build?
      Dir.mktmpdir do |scratch|
        raise ArgumentError, "--calls needs perf that may count tracepoints, or strace" if @options.calls && !Calls.available?

        plan = Plan.new(@options.workloads, targets(scratch), @options)
        progress = Progress.new(plan.size)
        warn "bin/bench: #{@options.workloads.size} workloads, #{plan.size} runs"
        stopped = through(plan, progress)
        write(Results.of(plan, @options, progress.elapsed))
        stopped ? STOPPED : verdict(plan)
      end
    end

    # Runs the plan. Returns whether it was interrupted; what has been measured by then is kept.
    def through(plan, progress)
      trap("TERM") { raise Interrupt }
      plan.run(progress)
      false
    rescue Interrupt
      warn "", "bin/bench: stopped; what has been measured is written"
      true
    end

    def build
      Dir.chdir(Options::ROOT) do
        system(RbConfig.ruby, "-S", "rake", "--silent", "compile", exception: true)
        system("cargo", "build", "--quiet", "--release", "--example", "http_load", "--example", "baseline", exception: true)
      end
    end

    def targets(scratch)
      own = Target.own(backends)
      unknown = @options.targets.to_a - own.map(&:name)
      raise ArgumentError, "no target #{unknown.join(', ')} here (there are: #{own.map(&:name).join(', ')})" unless unknown.empty?

      wanted = own.select { |target| @options.wants?(target.name) }
      peers = @options.against.map { |text| Target.peer(text, scratch) }
      twice = (own + peers).map(&:name).tally.select { |_, count| count > 1 }.keys
      raise ArgumentError, "two targets are called #{twice.join(', ')}" unless twice.empty?

      if wanted.any? { |target| target.kind == :baseline } && !File.executable?(Target::BASELINE)
        raise ArgumentError, "the baseline is not built (#{Target::BASELINE}): leave out --no-build, or name other --targets"
      end

      (wanted + peers).partition { |target| target.kind != :baseline }.flatten
    end

    def backends
      $LOAD_PATH.unshift(File.join(Options::ROOT, "lib"))
      require "reactor"
      Reactor.backends
    end

    def write(results)
      FileUtils.mkdir_p(@options.out)
      markdown = Markdown.new(results).text
      { "bench.json" => results.json, "bench.md" => markdown }.each { |name, text| File.write(File.join(@options.out, name), text) }
      puts markdown
      puts "", "Written: #{%w[json md].map { |kind| File.join(@options.out, "bench.#{kind}") }.join('  ')}"
    end

    # The exit status. If another library's scheduler fails or hangs, that is reported, and it is no error of this command.
    def verdict(plan) = plan.measurements.any? { |measurement| measurement.failure && measurement.target.trusted? } ? 1 : 0
  end
end

begin
  exit Bench::Command.new(Bench::Options.new(ARGV)).call
rescue OptionParser::ParseError, ArgumentError => error
  warn "bin/bench: #{error.message}", "bin/bench --help says what it takes"
  exit 2
rescue Interrupt
  exit Bench::Command::STOPPED
end

# frozen_string_literal: true

require "optparse"
require "rbconfig"

# What the generators of random programs share: the options of their command lines, and a run of seed after seed, several at a time,
# that collects failures by kind.
class Seeds
  # Seconds of a run that has no other limit.
  SECONDS = 60

  # @param counted [String, nil] the option that is the count: "programs"
  # @param defaults [Hash] of the options. There is --jobs and --backends only if they are among them.
  # @yield [parser] for more options
  # @return [Hash{Symbol => Object}] by name; also keywords for {new}
  def self.options(arguments, counted = nil, **defaults)
    options = { seed: Random.new_seed % 1_000_000, **defaults }
    OptionParser.new do |parser|
      parser.on("--seed N", Integer, "the first seed (default: #{defaults.fetch(:seed, "a random one")})")
      parser.on("--#{counted} N", Integer, "stop after this many") { |number| options[:count] = number } if counted
      parser.on("--seconds N", Float, "begin no other one after this time (default: #{SECONDS} without a count)")
      parser.on("--jobs N", Integer, "this many at a time (default: #{defaults[:jobs]})") if defaults.key?(:jobs)
      parser.on("--backends A,B", Array, "these only (default: those that work here)") if defaults.key?(:backends)
      yield parser if block_given?
    end.parse!(arguments, into: options)
    options[:backends] ||= backends if options.key?(:backends)
    options
  end

  # @return [Array<String>] the backends that work here. Another process is asked, because this one may have to stay without the library.
  def self.backends
    code = "puts Reactor.backends.select { |_, answer| answer == true }.keys"
    IO.popen([RbConfig.ruby, "-I", File.expand_path("../../lib", __dir__), "-r", "reactor", "-e", code], &:read).split
  end

  # The seeds of each kind of failure; how many seeds have begun.
  attr_reader :failures, :begun

  # @param seconds [Numeric] after which no other seed begins
  # @param enough [Numeric] failures after which no other seed begins
  def initialize(seed: 0, count: nil, seconds: nil, jobs: 1, enough: Float::INFINITY, **)
    @seed, @jobs, @enough, @begun = seed, jobs, enough, 0
    @count = count || Float::INFINITY
    @limit = now + (seconds || (count ? Float::INFINITY : SECONDS))
    @failures = {}
    @lock = Mutex.new
  end

  # @yield [seed, job] one seed at a time for each number of a job. The first job is this thread.
  # @return [Boolean] whether nothing failed
  def run(&block)
    others = Array.new(@jobs - 1) { |number| Thread.new { work(number + 1, &block) } }
    work(0, &block)
    others.each(&:join)
    @failures.empty?
  end

  # @return [Integer] the first seed of this kind
  def failed(kind, seed) = @lock.synchronize { ((@failures[kind] ||= []) << seed).first }

  def failed_times = @failures.each_value.sum(&:size)

  # A handler of a signal may call it.
  def stop = @limit = 0

  # Whether no other seed begins, whatever their count is.
  def over? = now > @limit || failed_times >= @enough

  # @yield [seed] what repeats it
  # @return [Array<String>] for each kind how many seeds it has, and what repeats the first
  def report = @failures.map { |kind, seeds| "#{kind} (#{seeds.size}): #{yield seeds.min}" }

  private

  def work(job)
    while (seed = @lock.synchronize { @seed + (@begun += 1) - 1 unless @begun >= @count || over? })
      yield seed, job
    end
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

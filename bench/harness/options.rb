# frozen_string_literal: true

require "optparse"
require "rbconfig"

module Bench
  # The command line.
  class Options
    ROOT = File.expand_path("../..", __dir__)
    HELP = <<~TEXT
      bin/bench: what each workload costs, ours beside other schedulers.

          bin/bench [options] [WORKLOAD…]   all workloads, or these (bin/bench --list names them)
          bin/bench STUDY                   a study of its own: %<studies>s
          bin/bench chart [BENCH.JSON [WORKLOAD…] [--cpu]]   README's chart, from docs/measured/headline.json or from new results

      Each run is a process of its own which warms up with a tenth of its operations; targets take turns (A B C A B C), and the
      median of the rounds counts. Results: DIR/bench.json, bench.md.
      Exit status: 0; 1 if a run failed, unless it was of another library's scheduler; 2 for arguments it does not understand.
    TEXT

    attr_reader :action, :workloads, :targets, :against, :rounds, :scale, :most, :out, :limit, :calls, :ruby, :given, :note

    # @raise [OptionParser::ParseError, ArgumentError] with a message for the user
    def initialize(arguments)
      @given = arguments.dup
      @action = :run
      @against = []
      @rounds = 5
      @scale = 1.0
      @most = 10_000
      @limit = 60
      @calls = false
      @flags = []
      @load_path = []
      @build = true
      @out = File.join(ROOT, "tmp", "bench")
      words = parser.parse(arguments)
      @workloads = choose(words)
      @ruby = [RbConfig.ruby, "-w", *@flags, "-I#{File.join(ROOT, 'lib')}", *@load_path.flat_map { |path| ["-I", path] }]
    end

    def build? = @build

    # Whether a target takes part: without a word, all do.
    def wants?(name) = @targets.nil? || @targets.include?(name)

    # The core a pinned workload runs on: the first this process may use; nil where that cannot be told or done.
    def core
      return unless system("taskset", "-V", out: File::NULL, err: File::NULL)

      File.read("/proc/self/status")[/^Cpus_allowed_list:\s+(\d+)/, 1]
    rescue SystemCallError
      nil
    end

    def help
      studies = Dir.children(File.join(ROOT, "bench")).grep(/\.rb\z/).map { |file| File.basename(file, ".rb") } - %w[support demo chart]
      "#{format(HELP, studies: studies.empty? ? 'there is none' : studies.sort.join(', '))}\n#{parser.summarize.join}"
    end

    private

    def parser
      @parser ||= OptionParser.new do |parser|
        whole(parser)
        part(parser)
        output(parser)
      end
    end

    def whole(parser)
      parser.on("--quick", "one round, a tenth of the size, N up to 1,000: under two minutes") do
        @rounds, @scale, @most, @limit = 1, 0.1, 1_000, 20
      end
      parser.on("--rounds N", Integer, "how often each is run (5)") { |n| @rounds = within(n, 1, 1_000, "--rounds") }
      parser.on("--scale X", Float, "number of operations, in parts of the full size (1)") { |x| @scale = within(x, 1e-6, 1_000, "--scale") }
      parser.on("--most N", Integer, "sizes N up to this only (10000)") { |n| @most = within(n, 0, 1_000_000, "--most") }
      parser.on("--limit S", Integer, "seconds after which a run counts as hanging (60)") { |s| @limit = within(s, 1, 86_400, "--limit") }
      parser.on("--calls", "count system calls per operation too, in runs of their own (by perf, or strace)") { @calls = true }
    end

    def part(parser)
      parser.on("--targets A,B", Array, "only these: threads, threads_mn, plain, baseline, and backends of reactor (all that work here)") { |names| @targets = names }
      parser.on("--against NAME", "another library's scheduler beside: one of bench/schedulers, a Ruby file that ends in one, or",
                "NAME=EXPRESSION; may be repeated") { |name| @against << name }
      parser.on("-I", "--load-path DIR", "where Ruby finds it") { |path| @load_path << File.expand_path(path) }
      parser.on("--yjit", "run Ruby with its JIT") { @flags << jit }
    end

    def output(parser)
      parser.on("--out DIR", "where results go (tmp/bench)") { |path| @out = File.expand_path(path) }
      parser.on("--note TEXT", "a sentence for the reader, printed with the results") { |text| @note = text }
      parser.on("--no-build", "measure what is built already") { @build = false }
      parser.on("--list", "name the workloads") { @action = :list }
      parser.on("-h", "--help", "this") { @action = :help }
    end

    def jit
      works = system(RbConfig.ruby, "--yjit", "-e", "exit RubyVM::YJIT.enabled?", out: File::NULL, err: File::NULL)
      works ? "--yjit" : raise(ArgumentError, "this Ruby (#{RUBY_VERSION}) has no YJIT")
    end

    def within(value, low, high, name)
      return value if value.between?(low, high)

      raise ArgumentError, "#{name} takes a number from #{low} to #{high}, not #{value}"
    end

    def choose(words)
      all = Workload.all
      unknown = words - all.keys
      raise ArgumentError, "no workload #{unknown.join(', ')} (bin/bench --list names them)" unless unknown.empty?

      words.empty? ? all.values : all.values_at(*words.uniq)
    end
  end
end

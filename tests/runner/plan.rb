# frozen_string_literal: true

require_relative "step"

module Runner
  # The steps of a run: quick, or everything on everything.
  class Plan
    TESTS = File.expand_path("../ruby", __dir__)
    # Files that do not depend on the backend: they run on the first backend only.
    BACKEND_INDEPENDENT = %w[
      test_bench test_docs test_examples test_fuzz test_gems test_layers test_panic_points test_rails test_runner
      test_real_servers test_types test_wide
    ].freeze
    # Of these the tests of our own tools: they run on one Ruby only, as does the documentation's site.
    OF_TOOLS = %w[test_bench test_fuzz test_layers test_panic_points test_runner test_types test_wide].freeze
    # What they load besides Ruby's own library. That Ruby is the newest that has it, because a new Ruby may lack gems.
    LIBRARIES_OF_TOOLS = %w[rbs yard kramdown-parser-gfm].freeze
    # Tables of many cells that wait: on the newest Ruby only, on the first backend and, with --all, on poll(2), which has no edges.
    TABLES = %w[test_callbacks test_endings test_exhaustion].freeze
    # Files that are fast enough with a collection at every allocation.
    STRESS = %w[test_block test_fiber test_gc test_io_read_write test_io_wait test_sleep test_timeout].freeze
    # Files that also run with RUBY_MN_THREADS=1, where Ruby moves threads between native ones. Before 4.0 it may crash then.
    MN = %w[test_block test_close test_fiber test_group test_io_read_write test_io_wait test_sleep test_timeout].freeze
    # Libraries that Ruby loads before the first line. Without them there is a third less to mark at every allocation.
    STRESS_WITHOUT = "--disable=gems,did_you_mean,error_highlight,syntax_suggest"
    # Programs of bin/check fuzz before a commit; with --all, and the seconds of all Rubies together after which no other one begins.
    FUZZ_PROGRAMS = 40
    FUZZ_PROGRAMS_OF_ALL = 120
    FUZZ_SECONDS = 120
    # Calls of bin/check wild on the first backend, with --all.
    WILD_CALLS = 2000

    # @param names [Array<String>] parts of the names of test files; empty for all
    def initialize(all:, names: [])
      @all = all
      @names = names
    end

    # @param rubies [Array<Ruby>] the oldest first
    # @return [Array<Ruby>] those to test
    def selected(rubies)
      @newest = rubies.last
      @rubies = @all ? rubies : rubies.last(1)
      @of_tools = @rubies.reverse.find { |ruby| ruby.loads?(LIBRARIES_OF_TOOLS) } || @newest
      @rubies
    end

    # The steps without the extension. They run one by one, because a cargo command locks its build directory.
    def rust
      return [] unless @names.empty?

      steps = [
        cargo("formatting", "fmt", "--all", "--check"),
        cargo("formatting of the models", "fmt", "--check", "--manifest-path", "tests/model/Cargo.toml"),
        cargo("formatting of the faults", "fmt", "--check", "--manifest-path", "tests/faults/Cargo.toml"),
        cargo("tests", "test", "--quiet", "-p", "reactor-loop", "--all-features", count: :rust),
        cargo("the scheduler's state", "test", "--quiet", "-p", "reactor-scheduler", count: :rust),
        cargo("lints", "clippy", "--quiet", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"),
        cargo("documentation", "doc", "--quiet", "--no-deps", "-p", "reactor-loop", "--all-features", env: { "RUSTDOCFLAGS" => "-Dwarnings" })
      ]
      return steps unless @all

      steps << Step.new("rust: threads in every order", "bin/check", "model", lane: :cargo, count: :rust)
      steps << Step.new("rust: system calls that fail", "bin/check", "faults", "--part", "--core", lane: :cargo)
    end

    def compile(ruby) = Step.new("#{ruby.name}: compile", ruby.command, "-S", "rake", "compile", lane: :compile)

    # The suite of one Ruby after the extension was built: a process for each file.
    def suites(ruby)
      backends = ruby.backends
      chosen = @all ? backends : backends - ["poll"]
      chosen = backends.first(1) unless [@rubies.first, @newest].include?(ruby)
      steps = chosen.flat_map { |backend| suite(ruby, backend, again: backend != backends.first) }
      return steps unless @names.empty?

      # The longest steps start first.
      own = @all ? of_newest(ruby, backends.first) + site(ruby) + other_suites(ruby, backends.first) : [fuzz(ruby, "--seed", "1", "--programs", FUZZ_PROGRAMS.to_s)]
      own + [cruby(ruby, chosen), guard(ruby)] + steps
    end

    private

    def cargo(what, *arguments, **options)
      Step.new("rust: #{what}", "cargo", *arguments, lane: :cargo, **options)
    end

    # The tables and the largest files come first, because they take longest.
    def files
      found = Dir[File.join(TESTS, "test_*.rb")].sort_by { |path| -File.size(path) }.map { |path| File.basename(path, ".rb") }
      found = (TABLES & found) | found
      @names.empty? ? found : found.select { |file| @names.any? { |name| file.include?(name) } }
    end

    def suite(ruby, backend, again:)
      chosen = again ? files - BACKEND_INDEPENDENT : files
      chosen -= TABLES if again && backend != "poll"
      chosen -= OF_TOOLS unless ruby == @of_tools
      chosen -= TABLES unless ruby == @newest
      chosen.map do |file|
        test(ruby, "#{ruby.name}: #{backend}", file, env: { "REACTOR_BACKEND" => backend })
      end
    end

    def stress(ruby, backend)
      (files & STRESS).map do |file|
        test(ruby, "#{ruby.name}: #{backend} under GC.stress", file, options: [STRESS_WITHOUT, "-I", ruby.minitest],
             env: { "REACTOR_BACKEND" => backend, "REACTOR_STRESS" => "1" })
      end
    end

    def mn_threads(ruby, backend)
      return [] if Gem::Version.new(ruby.version) < Gem::Version.new("4.0")

      (files & MN).map do |file|
        test(ruby, "#{ruby.name}: #{backend} with M:N threads", file, env: { "REACTOR_BACKEND" => backend, "RUBY_MN_THREADS" => "1" })
      end
    end

    def test(ruby, group, file, env:, options: [], **rest)
      Step.new("#{group} #{file}", ruby.command, "-w", *options, "-Ilib", File.join(TESTS, "#{file}.rb"), "-v", group: group, env: env, count: :ruby, **rest)
    end

    def fiber_suite(ruby) = "#{ruby.name}: CRuby's fiber suite"

    # A part of CRuby's tests in fibers: on every backend of the newest Ruby, else on the first one. All of them take over ten minutes
    # on two Rubies and three backends. After the step that unpacks the same sources, and one after another, because each runs two
    # processes.
    def cruby(ruby, backends)
      backends = backends.first(1) unless @all && ruby == @newest
      Step.new("#{ruby.name}: CRuby's own tests in fibers, #{backends.join(" ")}", "bin/check", "conformance", "--wide", "--part", lane: :cruby,
               after: [fiber_suite(ruby)], env: { "RUBY" => ruby.command, "REACTOR_BACKEND" => backends.join(" ") }, count: :wide)
    end

    def other_suites(ruby, backend)
      env = { "RUBY" => ruby.command, "REACTOR_BACKEND" => backend }
      [
        Step.new(fiber_suite(ruby), "bin/check", "conformance", lane: :cruby, env: env, count: :conformance),
        Step.new("#{ruby.name}: wild calls", ruby.command, "-w", "tests/wild/main.rb", "--backends", backend, "--seed", "1", "--calls", WILD_CALLS.to_s),
        fuzz(ruby, "--seed", "1", "--programs", FUZZ_PROGRAMS_OF_ALL.to_s, "--seconds", (FUZZ_SECONDS / @rubies.size).to_s)
      ]
    end

    # What takes long, or is the same on each Ruby: the suite under GC.stress and with M:N threads, the soak. For an older Ruby: RUBY=ruby3.3 bin/test --all.
    def of_newest(ruby, backend)
      return [] unless ruby == @newest

      env = { "RUBY" => ruby.command, "REACTOR_BACKEND" => backend }
      [*stress(ruby, backend), *mn_threads(ruby, backend), curves(ruby), Step.new("#{ruby.name}: soak", "bin/check", "soak", "12", env: env),
       Step.new("Windows: a part of the suite, under Wine", "bin/check", "windows", "--if-built", "--part", lane: :windows)]
    end

    # The documentation as one site, with every link in it.
    def site(ruby)
      return [] unless ruby == @of_tools

      [Step.new("the documentation's site and its links", "bin/docs", "--if-installed", lane: :cargo, env: { "RUBY" => ruby.command })]
    end

    # What operations cost, compared with the committed figures.
    def guard(ruby) = Step.new("#{ruby.name}: costs", ruby.command, "-w", "-Ilib", "bench/guard.rb")

    # Whether an item of a collection costs as much among many as among few.
    def curves(ruby) = Step.new("#{ruby.name}: costs among many", ruby.command, "-w", "-Ilib", "bench/curves.rb", env: { "REACTOR_BACKEND" => "epoll" })

    # Programs on threads and on every backend that works here. They are the same in each run, so that a change is red by what it
    # does: `bin/check fuzz` itself begins with a random seed.
    def fuzz(ruby, *arguments) = Step.new("#{ruby.name}: fuzz", ruby.command, "-w", "tests/fuzz/main.rb", *arguments)
  end
end

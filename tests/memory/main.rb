# frozen_string_literal: true

require "etc"
require "fileutils"
require "rbconfig"
require_relative "../runner/counts"
require_relative "../runner/plan"
require_relative "../runner/queue"
require_relative "../runner/report"
require_relative "../runner/step"
require_relative "reports"

# bin/check memory calls this after it has built the extension in tmp/memory/tree.
#
#   ruby tests/memory/main.rb [--part] [WORD…]
module Memory
  WORK = File.expand_path("../../tmp/memory", __dir__)
  TREE = File.join(WORK, "tree")
  LIBRARY = File.join(TREE, "lib/reactor", RUBY_VERSION[/\A\d+\.\d+/], "reactor.so")

  # One call of bin/check memory: AddressSanitizer, with a runtime that is loaded before Ruby.
  class Run
    OPTIONS = {
      handle_segv: 0, handle_abort: 0, use_sigaltstack: 0, # Ruby's own handlers stay
      detect_stack_use_after_return: 0, # a conservative collector looks for references on the real stack
      abort_on_error: 1, exitcode: 0, # an error ends the process; a leak changes no exit status
      # The extension joins no thread. The runtime once ended a process at a join of the VM's, of a thread that it took for joined.
      detect_invalid_join: 0,
      symbolize: 0, malloc_context_size: 16
    }.freeze
    # Each must be reported with these words.
    PLANTED = {
      "use after free" => "heap-use-after-free", "write past the end" => "heap-buffer-overflow",
      "read past a local" => "stack-buffer-overflow", "leak" => "leak of 7700 byte"
    }.freeze
    PART = %w[test_fiber test_io_read_write].freeze

    # Tests of resident memory: the runtime keeps freed memory, to notice its use. A program under strace: LeakSanitizer uses
    # ptrace(2) itself.
    LEFT_OUT = /memory_stays_flat|cancelled_timeouts_leave_no_timers|guard_counts_the_same_calls/

    # Steps at a time: twice as many as in bin/test, because they wait for more. The sanitizer's processes start slowly.
    PER_PROCESSOR = 2 * Runner::Queue::PER_PROCESSOR

    # @param words [Array<String>] parts of the names of test files; empty for all but those of our own tools
    def initialize(words)
      @words = words
      @backends = ENV["REACTOR_BACKEND"]&.split || %w[epoll uring poll]
      @reports = File.join(WORK, "reports")
      @logs = File.join(WORK, "logs")
      FileUtils.rm_rf([@reports, @logs])
      FileUtils.mkdir_p(@logs)
    end

    # @return [Boolean] whether no error was found but the planted ones
    def run
      return false unless planted?

      output = Runner::Report.new($stdout)
      queue = Runner::Queue.new(PER_PROCESSOR * Etc.nprocessors)
      queue.add(@backends.flat_map { |backend| steps(backend) })
      queue.run(@logs) { |step| output.ended(step, queue) }
      problems = print_problems
      passed = output.summary
      puts "AddressSanitizer: #{problems} problems in #{paths.size} reports"
      problems.zero? && passed
    end

    private

    def planted?
      missed = @backends.product(PLANTED.to_a).reject { |backend, (error, words)| found?(backend, error, words) }
      puts "AddressSanitizer finds #{PLANTED.keys.join(", ")}" if missed.empty?
      missed.each { |backend, (error, _)| puts "FAILED  AddressSanitizer does not find on #{backend}: #{error}" }
      missed.empty?
    end

    def found?(backend, error, words)
      place = folder("planted-#{backend}-#{error.tr(" ", "-")}")
      program = 'Reactor.run { Fiber.schedule { Reactor::PlantedErrors.make(ARGV.first) or abort("unknown error") } }'
      Process.wait(Process.spawn(environment(backend, place), RbConfig.ruby, "-Ilib", "-rreactor", "-e", program, error,
                                 chdir: TREE, %i[out err] => File.join(place, "output")))
      Reports.problems(Dir[File.join(place, "report*")]).any? { |problem| problem.include?(words) }
    end

    # Tests of our own tools run only when asked for: they took nearly half of the time, and run no more of the extension than the others.
    def steps(backend)
      files = Dir[File.join(TREE, "tests/ruby/test_*.rb")].sort_by { |path| -File.size(path) }.map { |path| File.basename(path, ".rb") }
      files -= Runner::Plan::BACKEND_INDEPENDENT unless backend == @backends.first
      files = @words.empty? ? files - Runner::Plan::OF_TOOLS : files.select { |file| @words.any? { |word| file.include?(word) } }
      files.map { |file| step(backend, file) }
    end

    def step(backend, file)
      group = "ruby #{RUBY_VERSION}: #{backend}, AddressSanitizer"
      Runner::Step.new("#{group} #{file}", "/usr/bin/env", "-C", TREE, RbConfig.ruby, "-w", "-Ilib", "tests/ruby/#{file}.rb", "-v", "-e", LEFT_OUT.inspect,
                       group: group, env: environment(backend, folder("#{backend}-#{file}")), count: :ruby)
    end

    def environment(backend, place)
      options = OPTIONS.merge(log_path: File.join(place, "report")).map { |pair| pair.join("=") }.join(":")
      { "REACTOR_BACKEND" => backend, "RUBY_SHARED_FIBER_POOL_FREE_STACKS" => "1",
        "LD_PRELOAD" => File.join(WORK, "runtime.so"), "ASAN_OPTIONS" => options }
    end

    def folder(name) = File.join(@reports, name).tap { |path| FileUtils.mkdir_p(path) }

    def paths = Dir[File.join(@reports, "*/report*")].grep_v(%r{/planted-})

    # @return [Integer] how many there are
    def print_problems
      all = paths.sort.group_by { |path| File.basename(File.dirname(path)) }.flat_map do |name, files|
        Reports.problems(files).map { |problem| [Reports.named(problem, LIBRARY), name] }
      end
      all.group_by { |problem, _| problem.gsub(/==\d+==|0x\h+/, "") }.each_value do |same|
        puts "#{same.size} times in #{same.map(&:last).uniq.join(", ")}:", same.first.first.lines.first(60).map { |line| "    | #{line}" }
      end
      all.size
    end
  end
end

words = ARGV == ["--part"] ? Memory::Run::PART : ARGV
abort "unknown option #{words.grep(/\A-/).first}" if words.any?(/\A-/)
exit Memory::Run.new(words).run

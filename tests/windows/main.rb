# frozen_string_literal: true

# The steps of bin/check windows. It runs in the tree of tests/tree.

require "fileutils"
require "tmpdir"
require_relative "../runner/queue"
require_relative "../runner/report"
require_relative "suite_step"

module Windows
  ROOT = File.expand_path("../..", __dir__)
  SKIPS = File.join(__dir__, "skips")
  # A wine process each.
  SLOTS = 2
  # Seconds of a file.
  LIMIT = 300
  # The files of --part.
  PART = %w[
    test_block test_close test_fiber test_group test_io_read_write test_io_select test_io_wait test_run test_sleep test_timeout
  ].freeze
  # minitest is Ruby only, so that of the tree's Ruby serves.
  MINITEST = Gem::Specification.find_by_name("minitest").full_require_paths.first

  class Main
    def initialize(arguments)
      @part = arguments.delete("--part")
      abort "unknown option #{arguments.grep(/\A-/).first} (there is: --part)" if arguments.any?(/\A-/)
      @names = arguments
      @queue = Runner::Queue.new(SLOTS)
      @report = Runner::Report.new($stdout)
    end

    # @return [Boolean] whether nothing failed
    def run
      Dir.mktmpdir("reactor-windows") do |folder|
        @folder = folder
        @queue.add([build])
        @queue.add(crates) unless @part || @names.any?
        @queue.run(folder) { |step| ended(step) }
      end
      @report.summary
    end

    private

    # The suite runs from a copy, where the libraries of Linux are not.
    def copy
      folder = File.join(@folder, "suite")
      FileUtils.mkdir_p(folder)
      system("tar --exclude=./.git --exclude=./target --exclude=./tmp --exclude='*.so' -cf - . | tar -xf - -C #{folder}", exception: true)
      FileUtils.cp_r("tmp/windows/lib", folder)
      folder
    end

    def build = @build ||= Runner::Step.new("Ruby for Windows", "tests/windows/build_ruby")

    def extension = @extension ||= Runner::Step.new("the extension", "tests/windows/build_extension", lane: :cargo)

    def crates
      [Runner::Step.new("crate: the core", "tests/windows/crates", lane: :cargo, count: :rust),
       Runner::Step.new("crate: the scheduler's state", "tests/windows/crates", "-p", "reactor-scheduler", lane: :cargo, count: :rust)]
    end

    def ended(step)
      @report.ended(step, @queue)
      return if step.failed?

      if step == @build
        @ruby = File.readlines(step.log, chomp: true).last
        @queue.add([extension])
      elsif step == @extension
        @queue.add(suite)
        @queue.add([Runner::Step.new("the gem from its file", "tests/windows/gem")]) unless @part || @names.any?
      end
    end

    def suite
      skips, folder = Skips.new(SKIPS), copy
      files.select { |file| skips.file?(file) }.map do |file|
        hanging = skips.hanging
        command = ["wine", "#{@ruby}/bin/ruby.exe", "-C", folder, "-w", "-I", MINITEST, "-Ilib", "tests/ruby/#{file}.rb", "-v"]
        # Without a question mark: Ruby expands those itself on Windows, and a long one ends it before its start.
        command += ["-e", "/\\A(#{hanging.join("|")})\\z/"] if hanging.any?
        SuiteStep.new("windows: iocp #{file}", *command, group: "windows: iocp", skips: skips, limit: LIMIT)
      end
    end

    # The largest come first, because they take longest.
    def files
      found = Dir[File.join(ROOT, "tests/ruby/test_*.rb")].sort_by { |path| -File.size(path) }.map { |path| File.basename(path, ".rb") }
      found &= PART if @part
      @names.empty? ? found : found.select { |file| @names.any? { |name| file.include?(name) } }
    end
  end
end

Dir.chdir(Windows::ROOT)
exit Windows::Main.new(ARGV.dup).run

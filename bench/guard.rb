# frozen_string_literal: true

# What operations cost, compared with the committed figures of bench/guard/figures.json: instructions outside the kernel (by
# valgrind) and system calls (by strace). Both are the same in nearly each run, however busy the machine is, because the program
# has a clock that counts its readings (bench/guard/clock.c). Guard#dearer_again tells of the exception.
#
#   bin/bench guard                 compares; fails if a row costs over 3 % more
#   bin/bench guard pipe tcp        these rows only
#   bin/bench guard --write         writes the figures of this platform
#
# A figure is the difference between few and many operations. The figures depend on the Ruby, the compiler, the kernel, the C
# library and the file system of the file that is read, so they are kept for each such platform. Without figures for this
# platform nothing is compared, and the exit status is 77.

require "etc"
require "json"
require_relative "guard/operations"

module Bench
  class Guard
    SCRIPT = File.expand_path("guard/operations.rb", __dir__)
    CLOCK = File.expand_path("guard/clock.c", __dir__)
    FIGURES = File.expand_path("guard/figures.json", __dir__)
    BACKEND = "epoll"
    OFTEN = SIZES.last - SIZES.first
    MORE = 1.03  # times as many instructions
    CALLS = 0.03 # calls more
    UNAVAILABLE = 77

    def self.platform
      system = [Etc.uname.values_at(:sysname, :release).join(" ")[/\A\S+ \d+\.\d+/], Etc.confstr(Etc::CS_GNU_LIBC_VERSION)]
      file_system = IO.popen(["stat", "-f", "-c", "%T", SCRIPT], &:read).chomp
      [RUBY_DESCRIPTION[/\Aruby \S+/], `rustc --version`[/\Arustc \S+/], RUBY_PLATFORM, *system, file_system].join(", ")
    end

    def initialize(arguments)
      @write = arguments.delete("--write")
      unknown = arguments - OPERATIONS.keys
      abort "bin/bench guard: unknown row #{unknown.join(", ")} (there are: #{OPERATIONS.keys.join(", ")})" if unknown.any?
      @rows = arguments.empty? ? OPERATIONS.keys : arguments
      @figures = File.exist?(FIGURES) ? JSON.parse(File.read(FIGURES)) : {}
    end

    # @return [Integer] the exit status
    def run
      reason = unavailable
      return give_up(reason) if reason

      measured = measure
      return write(measured) if @write

      worse = dearer(measured)
      worse = dearer_again(worse) if worse.any?
      puts worse.empty? ? "no row is dearer" : "dearer: #{worse.join(", ")} (bin/bench guard --write, if that is meant)"
      worse.empty? ? 0 : 1
    end

    private

    def known = @figures.fetch(self.class.platform, {})

    def unavailable
      missing = %w[valgrind strace cc].find { |tool| !system(tool, "--version", out: File::NULL, err: File::NULL) }
      return "#{missing} is missing" if missing

      "no figures for #{self.class.platform}" if known.empty? && !@write
    end

    def give_up(reason)
      puts "nothing is compared: #{reason}"
      UNAVAILABLE
    end

    def dearer(measured)
      measured.each { |row, figures| show(row, figures, known.fetch(row, nil)) }
      @rows.reject { |row| cheap?(measured.fetch(row), known.fetch(row, nil)) }
    end

    # Once in some forty runs, on a busy machine, a row counted 739,000 instructions more than in all others. Its cause is not known. A
    # row that has become dearer is dearer each time.
    def dearer_again(rows)
      puts "measured again: #{rows.join(", ")}"
      @rows = rows
      dearer(measure)
    end

    def measure
      counts = Dir.mktmpdir do |folder|
        environment = { "REACTOR_BACKEND" => BACKEND, "LD_PRELOAD" => compile_clock(folder) }
        [Thread.new { Rows.instructions(SCRIPT, @rows, environment) }, Thread.new { calls(folder, environment) }].map(&:value)
      end
      @rows.zip(*counts.map { |marked| per_operation(marked) }).to_h do |row, instructions, calls|
        [row, { "instructions" => instructions.round, "calls" => calls.round(2) }]
      end
    end

    def compile_clock(folder)
      File.join(folder, "clock.so").tap { |clock| system("cc", "-shared", "-fPIC", "-O2", "-o", clock, CLOCK, exception: true) }
    end

    # @param marked [Array<Integer>] what was counted from each mark to the next
    # @return [Array<Float>] for each row
    def per_operation(marked)
      marked.each_slice(3).map { |few, many, _after| (many - few).fdiv(OFTEN) }
    end

    def calls(folder, environment)
      out = File.join(folder, "calls")
      Rows.under(environment, SCRIPT, @rows, "strace", "-qq", "-o", out) # of the main thread only: the VM has one more that goes by the clock
      File.readlines(out).slice_when { |line, _| line.start_with?("#{Rows::MARK}(") }.drop(1).map(&:size)
    end

    def cheap?(now, before)
      before.nil? || (now["instructions"] <= before["instructions"] * MORE && now["calls"] <= before["calls"] + CALLS)
    end

    def show(row, now, before)
      line = format("%-10s %8d instructions, %5.2f calls", row, *now.values)
      before &&= format("; before %8d (%+.1f %%), %5.2f", before["instructions"], (now["instructions"].fdiv(before["instructions"]) - 1) * 100, before["calls"])
      puts "#{line}#{before}"
    end

    def write(measured)
      @figures[self.class.platform] = known.merge(measured)
      File.write(FIGURES, "#{JSON.pretty_generate(@figures.sort.to_h)}\n")
      puts "written: #{FIGURES}"
      0
    end
  end
end

exit Bench::Guard.new(ARGV.dup).run if $PROGRAM_NAME == __FILE__

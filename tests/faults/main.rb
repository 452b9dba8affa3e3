# frozen_string_literal: true

require "open3"
require "optparse"
require "rbconfig"
require "tmpdir"

# Runs program.rb once for each call of the extension, each error of that call in the list, and each place where it is made.
# There the call fails. What the program prints must be what it prints without a failure.
#
#   ruby tests/faults/main.rb                       all of it, on each native backend that works here
#   ruby tests/faults/main.rb --call epoll_ctl      the calls with this word in their names
#   ruby tests/faults/main.rb --sample 40           every fortieth run
#   ruby tests/faults/main.rb --suite close sleep   nothing fails: are the calls of these files of the suite in the list?
module Faults
  ROOT = File.expand_path("../..", __dir__)
  PROGRAM = File.join(__dir__, "program.rb")
  UNAVAILABLE = 77
  SECONDS = 60 # a run takes one; longer than that is a hang
  MORE_CALLS = 300 # than without a failure: a busy loop

  # A call that fails.
  Fault = Struct.new(:call, :place, :error) do
    def to_s = "#{call} ##{place} #{error}"
    def arguments = [call, place.to_s, error]
  end

  # The rows of the list that fail.
  LIST = File.readlines(File.join(__dir__, "calls"), chomp: true).map { |line| line[/\A[^#]*/].strip }.reject(&:empty?)
  ERRORS = LIST.grep(/\A[\w ]+:/).to_h { |line| line.split(":").then { |name, errors| [name, errors.split] } }
  KEPT = LIST.grep(/\A[\w ]+ - /).map { |line| line.split(" - ").first }

  # What one run did.
  class Run
    attr_reader :calls

    def initialize(injector, backend, fault: nil, seconds: SECONDS, program: [PROGRAM])
      Dir.mktmpdir do |folder|
        report = File.join(folder, "report")
        plan = fault ? fault.arguments : ["watch"]
        @text, @loud, = Open3.capture3({ "REACTOR_BACKEND" => backend },
                                       injector, report, "reactor.so", seconds.to_s, *plan, "--",
                                       RbConfig.ruby, "-I#{ROOT}/lib", *program)
        lines = File.exist?(report) ? File.readlines(report, chomp: true) : []
        @status = lines.grep(/\Astatus/).first.to_s.delete_prefix("status ")
        @failed = lines.grep(/\Afailed/).first&.split&.drop(1)
        @calls = lines.grep(/\Acall/).to_h { |line| line.split(" ", 3).then { |_, count, name| [name, count.to_i] } }
      end
    end

    def success? = @status == "exit status: 0"
    def made? = !@failed.nil?
    def unsupported? = @status.empty?
    def reason = @loud.lines.last.to_s.chomp
    def result = @text.lines(chomp: true).grep(/\A\| /)
    def errors = @text.lines(chomp: true).grep(/\Aerror /).map { |line| line.split.drop(1) }
    def total = @calls.values.sum

    # The tasks with the descriptor of the call that failed.
    def tasks
      owners = @text.lines(chomp: true).grep(/\Afd /).map { |line| line.split.drop(1) }
      owners.select { |number, _| number == @failed.first }.map(&:last)
    end

    def problems(fault, usual)
      found = []
      found << "ends with #{@status}: #{@loud.lines.first(3).join.strip}" unless success?
      found << "is left with #{(result - usual.result).inspect} instead of #{(usual.result - result).inspect}" if success? && differs?(fault, usual)
      found << "#{fault.error} is reported" if fault.error == "EINTR" && errors.any?
      found << "reports #{errors.inspect}" unless errors.empty? || (errors.size == 1 && (of_the_resolver? || expected(fault).include?(errors.first.last)))
      found << "raises in #{errors.first.first}, the descriptor belongs to #{tasks}" if errors.size == 1 && in_another_task?(fault)
      found << "makes #{total} calls instead of #{usual.total}" if total > usual.total + MORE_CALLS
      found
    end

    private

    # A close that fails is not made here; the kernel would close the descriptor nevertheless.
    def differs?(fault, usual)
      return result != usual.result unless fault.call == "close"

      result.map { |line| line.sub("descriptors left 1", "descriptors left 0") } != usual.result
    end

    # getaddrinfo(3) reads files by the same calls, and turns their errors into its own.
    def of_the_resolver? = errors.first.first == "names" && errors.first.last == "Socket::ResolutionError"

    # Only if one task alone has had the number. A terminal is opened once more for a write.
    def in_another_task?(fault)
      return false if fault.call.start_with?("epoll", "io_uring", "close") || errors.first.first == "terminal"

      tasks.uniq.size == 1 && tasks.first != errors.first.first
    end

    # pthread_create(3) reports each failure of clone3(2) as EAGAIN, and Ruby as a ThreadError.
    def expected(fault)
      fault.call == "clone3" ? %w[Errno::EAGAIN ThreadError] : [Errno.const_get(fault.error).name]
    end
  end

  class Main
    def initialize(arguments)
      @sample = 1
      @offset = 0
      OptionParser.new do |options|
        options.on("--call WORD") { |word| @call = word }
        options.on("--error NAME") { |name| @error = name }
        options.on("--sample N", Integer) { |number| @sample = number }
        options.on("--backends LIST") { |list| @backends = list.split(",") }
        options.on("--places N", Integer) { |number| @places = number }
        options.on("--seconds N", Integer) { |number| @seconds = number }
        options.on("--suite") { @suite = true }
      end.parse!(arguments)
      @words = arguments
      @injector = File.join(ENV.fetch("CARGO_TARGET_DIR", "#{ROOT}/target/faults"), "debug/reactor-faults")
    end

    def run
      raise "there is no native backend" if backends.empty?

      found = backends.sum { |backend| @suite ? suite_on(backend) : on(backend) }
      puts "#{found} problems"
      found.zero? ? 0 : 1
    end

    private

    def backends
      @backends ||= begin
        usable = "puts Reactor.backends.select { |name, answer| answer == true && name != :select }.keys"
        IO.popen([RbConfig.ruby, "-I#{ROOT}/lib", "-rreactor", "-e", usable], &:read).split
      end
    end

    def on(backend)
      usual = Run.new(@injector, backend)
      abort_unsupported(usual) if usual.unsupported?
      problems = usual.success? && usual.errors.empty? ? [] : ["without a failure: #{usual.problems(Fault.new("", 0, ""), usual)}"]
      problems += (usual.calls.keys - ERRORS.keys - KEPT).map { |call| "#{call} is not in the list" }
      problems.each { |problem| puts "#{backend}: #{problem}" }
      faults = faults(usual)
      chosen = faults.each_slice(@sample).map(&:first)
      made = chosen.count do |fault|
        done = Run.new(@injector, backend, fault: fault, seconds: @seconds || SECONDS)
        found = done.problems(fault, usual).map { |problem| "#{fault}: #{problem}" }
        found.each { |problem| puts "#{backend}: #{problem}" }
        $stdout.flush
        problems.concat(found)
        done.made?
      end
      pairs = faults.map { |fault| [fault.call, fault.error] }.uniq.size
      puts "#{backend}: #{usual.calls.size} calls, #{pairs} pairs of a call and an error, #{made} of #{faults.size} faults made"
      problems.size
    end

    # The files of the suite: which calls have no row?
    def suite_on(backend)
      files = Dir["#{ROOT}/tests/ruby/test_*.rb"].select { |path| @words.empty? || @words.any? { |word| File.basename(path).include?(word) } }
      known = ERRORS.keys + KEPT
      files.sum do |path|
        run = Run.new(@injector, backend, seconds: 600, program: ["-r#{__dir__}/begin", path])
        missing = run.calls.keys - known
        puts "#{backend}: #{File.basename(path)}: #{run.calls.size} calls#{missing.map { |call| "; #{call} is not in the list" }.join}"
        $stdout.flush
        missing.size
      end
    end

    def faults(usual)
      calls = usual.calls.select { |call, _| ERRORS.key?(call) && (@call.nil? || call.include?(@call)) }
      calls.flat_map do |call, count|
        ERRORS[call].product((1..[count, @places || count].min).to_a).map { |error, place| Fault.new(call, place, error) }
      end.select { |fault| @error.nil? || fault.error == @error }
    end

    def abort_unsupported(run)
      puts "no listener for system calls here: #{run.reason}"
      exit UNAVAILABLE
    end
  end
end

exit Faults::Main.new(ARGV).run if $PROGRAM_NAME == __FILE__

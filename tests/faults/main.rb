# frozen_string_literal: true

require "etc"
require "optparse"
require_relative "list"
require_relative "run"

# Runs program.rb once for each call of the extension, each error of that call in the list, and each place where it is made.
# There the call fails. What the program prints must be what it prints without a failure.
#
#   ruby tests/faults/main.rb                       all of it, on each backend that works here
#   ruby tests/faults/main.rb --call epoll_ctl      the calls with this word in their names
#   ruby tests/faults/main.rb --task stream         those for one task of the program; main or thread: for none
#   ruby tests/faults/main.rb --part                the first call of each kind of each task, with one error
#   ruby tests/faults/main.rb --pairs FILE          appends the pairs of a call and an error that were made
#   ruby tests/faults/main.rb --complete            fails if a pair of the list is not in that file
module Faults
  UNAVAILABLE = 77
  WATCHED = 3 # runs without a failure: in one of them each call is made
  BATCH = 50 # runs of one program, which forks for each
  TRIES = 3 # a call that is not made in one run is made in another

  # All of it on one backend.
  class Trials
    attr_reader :made

    def initialize(backend)
      @backend = backend
      @made = []
      @problems = 0
    end

    # Returns the number of problems.
    def run(in_part, &)
      watch
      faults = faults(&)
      chosen = in_part ? part(faults) : faults
      unmade = chosen
      TRIES.times { unmade = in_parallel(unmade) { |batch| try(batch) } }
      unmade.each { |fault| puts "#{@backend}: #{describe(fault)}: not made in #{TRIES} runs" }
      report_unmade(chosen) unless in_part
      problem("no fault was made") if @made.empty?
      puts "#{@backend}: #{@usual.calls.size} calls, #{faults.map(&:pair).uniq.size} pairs of a call and an error, " \
           "#{chosen.size - unmade.size} of #{faults.size} faults made"
      @problems
    end

    private

    # Runs without a failure. A place may be reached more often in one of them than in another.
    def watch
      batch = Batch.new(@backend, [nil] * WATCHED)
      abort_unsupported(batch.reason) if batch.reason
      runs = batch.runs.compact
      @usual = runs.max_by(&:total)
      runs.each { |run| problem("without a failure: #{run.description}") unless run.success? && run.errors.empty? && run.result == @usual.result }
      @always = runs.map { |run| run.places.keys }.reduce(:&)
      @places = runs.map(&:places).reduce { |all, places| all.merge(places) { |_, *counts| counts.max } }
      List.missing(runs.flat_map(&:calls).uniq).each { |call| problem("#{call} is not in the list") }
    end

    # From Ruby 4.0 on the library closes what a task has. A close that fails is not made here, although the kernel would close the
    # descriptor nevertheless, so a peer would wait for the end for ever: these closes do not fail.
    def faults
      places = @places.reject { |place, _| place.call == "close" && !Place::SHARED.include?(place.task) }
      places.flat_map do |place, count|
        errors = List::ERRORS.fetch(place.call, [])
        (1..count).to_a.product(errors).map { |occurrence, error| Fault.new(place, occurrence, error) }
      end.select { |fault| yield fault, @usual.name_of(fault.place.task) }
    end

    # Faults that are the same on each machine: not those of calls for no task, whose order depends on the machine.
    def part(faults)
      firsts = faults.select { |fault| fault.occurrence == 1 && !Place::SHARED.include?(fault.place.task) && @always.include?(fault.place) }
      firsts.group_by(&:place).map { |_, group| group[describe(group.first).sum % group.size] }
    end

    # Returns the faults that could not be made.
    def try(faults)
      faults.zip(Batch.new(@backend, faults).runs).reject { |fault, run| judge(fault, run) }.map(&:first)
    end

    # Whether the fault was made.
    def judge(fault, run)
      return false unless run

      Verdict.new(fault, run, @usual).problems.each { |text| problem("#{describe(fault)}: #{text}") }
      @made << fault.pair if run.made?
      run.made?
    end

    def in_parallel(faults, &)
      queue = Thread::Queue.new(faults.each_slice(BATCH).to_a).close
      workers = Array.new(Etc.nprocessors) do
        Thread.new do
          done = []
          while (batch = queue.pop)
            done.concat(yield(batch))
          end
          done
        end
      end
      workers.flat_map(&:value)
    end

    # Which pairs there are depends on the machine where a call is not made in each run.
    def report_unmade(faults)
      pairs = faults.select { |fault| @always.include?(fault.place) }.map(&:pair).uniq - @made
      List.describe(pairs).each { |text| problem("#{text}: never made") }
    end

    def describe(fault) = "#{fault.call} of #{@usual.name_of(fault.place.task)} ##{fault.occurrence} #{fault.error}"

    def problem(text)
      @problems += 1
      puts "#{@backend}: #{text}"
      $stdout.flush
    end

    def abort_unsupported(reason)
      puts "programs cannot be supervised here: #{reason}"
      exit UNAVAILABLE
    end
  end

  class Main
    def initialize(arguments)
      OptionParser.new do |options|
        options.on("--call WORD") { |word| @call = word }
        options.on("--task NAME") { |name| @task = name }
        options.on("--error NAME") { |name| @error = name }
        options.on("--part") { @part = true }
        options.on("--backends LIST") { |list| @backends = list.split(",") }
        options.on("--pairs FILE") { |path| @pairs = path }
        options.on("--complete") { @complete = true }
      end.parse!(arguments)
    end

    def run
      raise "there is no backend" if backends.empty?

      found = backends.sum { |backend| on(backend) }
      found += incomplete if @complete
      puts "#{found} problems"
      found.zero? ? 0 : 1
    end

    private

    def backends
      @backends ||= begin
        usable = "puts Reactor.backends.select { |_, answer| answer == true }.keys"
        IO.popen([RbConfig.ruby, "-I#{ROOT}/lib", "-rreactor", "-e", usable], &:read).split
      end
    end

    def on(backend)
      trials = Trials.new(backend)
      found = trials.run(@part) { |fault, task| chosen?(fault, task) }
      List.write(@pairs, trials.made.uniq) if @pairs
      found
    end

    def chosen?(fault, task)
      (@call.nil? || fault.call.include?(@call)) && (@error.nil? || fault.error == @error) && (@task.nil? || task == @task)
    end

    # Each pair of the list must have been made, by this program or by the scenarios of the core.
    def incomplete
      never = List.pairs - List.read(@pairs)
      List.describe(never).each { |text| puts "#{text}: never made" }
      puts "#{List.pairs.size - never.size} of the #{List.pairs.size} pairs of the list made"
      never.size
    end
  end
end

exit Faults::Main.new(ARGV).run if $PROGRAM_NAME == __FILE__

# frozen_string_literal: true

require "etc"
require "optparse"
require_relative "list"
require_relative "run"
require_relative "../ruby/seeds"

# Runs the scenarios of the core on each driver, and program.rb on each backend, once for each call, each error of that call in the list,
# and each place where it is made. There the call fails. What is printed must be what is printed without a failure.
module Faults
  UNAVAILABLE = 77
  WATCHED = 3 # runs without a failure: in one of them each call is made
  BATCH = 50 # runs of one program, each in another process
  TRIES = 3 # a call that is not made in one run is made in another

  # Those of one program.
  class Trials
    # The pairs of a call and an error that were made.
    attr_reader :made

    def initialize(program)
      @program = program
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
      unmade.each { |fault| puts "#{@program.name}: #{describe(fault)}: not made in #{TRIES} runs" }
      report_unmade(chosen) unless in_part
      problem("no fault was made") if @made.empty? && (chosen.any? || @usual.calls.empty?)
      puts "#{@program.name}: #{@usual.calls.size} calls, #{faults.map(&:pair).uniq.size} pairs of a call and an error, " \
           "#{chosen.size - unmade.size} of #{faults.size} faults made"
      @problems
    end

    private

    # Runs without a failure. A place may be reached more often in one of them than in another.
    def watch
      batch = Batch.new(@program, [nil] * WATCHED)
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

    # Faults that are the same on each machine. The order of calls for no task of program.rb depends on the machine.
    def part(faults)
      firsts = faults.select { |fault| fault.occurrence == 1 && @always.include?(fault.place) }
      firsts = firsts.reject { |fault| Place::SHARED.include?(fault.place.task) } unless @program.of_the_core?
      firsts.group_by(&:place).map { |_, group| group[describe(group.first).sum % group.size] }
    end

    # Returns the faults that could not be made.
    def try(faults)
      faults.zip(Batch.new(@program, faults).runs).reject { |fault, run| judge(fault, run) }.map(&:first)
    end

    # Whether the fault was made.
    def judge(fault, run)
      return false unless run

      Verdict.new(@program, fault, run, @usual).problems.each { |text| problem("#{describe(fault)}: #{text}") }
      @made << fault.pair if run.made?
      run.made?
    end

    def in_parallel(faults)
      batches = faults.each_slice(BATCH).to_a
      Seeds.new(count: batches.size, jobs: Etc.nprocessors).run { |number| batches[number] = yield batches[number] }
      batches.flatten(1)
    end

    # Which pairs there are depends on the machine where a call is not made in each run.
    def report_unmade(faults)
      pairs = faults.select { |fault| @always.include?(fault.place) }.map(&:pair).uniq - @made
      List.describe(pairs).each { |text| problem("#{text}: never made") }
    end

    def describe(fault) = "#{fault.call} of #{@usual.name_of(fault.place.task)} ##{fault.occurrence} #{fault.error}"

    def problem(text)
      @problems += 1
      puts "#{@program.name}: #{text}"
      $stdout.flush
    end

    def abort_unsupported(reason)
      puts "programs cannot be supervised here: #{reason}"
      exit UNAVAILABLE
    end
  end

  class Main
    def initialize(arguments)
      @complete = arguments.empty?
      OptionParser.new do |options|
        options.on("--core", "the core only") { @ruby = false }
        options.on("--ruby", "the Ruby program only") { @core = false }
        options.on("--call WORD", "the calls with this word in their names") { |word| @call = word }
        options.on("--task NAME", "those for one task of the Ruby program; main or thread: for none") { |name| @task = name }
        options.on("--error NAME") { |name| @error = name }
        options.on("--part", "of each place the first call, with one error") { @part = true }
        options.on("--backends LIST", Array, "of the Ruby program") { |list| @backends = list }
      end.parse!(arguments)
    end

    # Returns whether there was no problem.
    def run
      found = programs.map { |program| Trials.new(program) }.sum do |trials|
        trials.run(@part) { |fault, task| chosen?(fault, task) }.tap { made.concat(trials.made) }
      end
      raise "no fault was made" if made.empty?

      found += incomplete if @complete
      puts "#{found} problems"
      found.zero?
    end

    private

    def made = @made ||= []

    def programs
      of_ruby = @ruby == false ? [] : (@backends || Seeds.backends).map { |backend| Program.of_ruby(backend) }
      [*(Program.of_the_core unless @core == false), *of_ruby]
    end

    def chosen?(fault, task)
      (@call.nil? || fault.call.include?(@call)) && (@error.nil? || fault.error == @error) && (@task.nil? || task == @task)
    end

    # Each pair of the list must have been made.
    def incomplete
      never = List.pairs - made
      List.describe(never).each { |text| puts "#{text}: never made" }
      puts "#{List.pairs.size - never.size} of the #{List.pairs.size} pairs of the list made"
      never.size
    end
  end
end

exit Faults::Main.new(ARGV).run if $PROGRAM_NAME == __FILE__

# frozen_string_literal: true

require "open3"
require "rbconfig"
require "tmpdir"

module Faults
  ROOT = File.expand_path("../..", __dir__)
  BUILT = File.join(ENV.fetch("CARGO_TARGET_DIR", "#{ROOT}/target/faults"), "debug")
  SECONDS = 60 # a run takes one; longer than that is a hang

  # What runs under supervision. Calls of the file with the end `library` count. More calls than without a failure and `slack` are a busy
  # loop.
  Program = Struct.new(:name, :environment, :command, :library, :slack) do
    def self.of_the_core = IO.popen(["#{BUILT}/scenarios"], &:read).split.map { |name| new(name, {}, ["#{BUILT}/scenarios", name], "-", 100) }

    def self.of_ruby(backend)
      new(backend, { "REACTOR_BACKEND" => backend }, [RbConfig.ruby, "-I#{ROOT}/lib", File.join(__dir__, "program.rb")], "reactor.so", 300)
    end

    def of_the_core? = library == "-"
  end

  # A call that is made for a task of the program, by the number of the task; "main" or "thread" if it is for none.
  Place = Struct.new(:call, :task)
  Place::SHARED = %w[main thread].freeze

  # The n-th call of a place fails.
  Fault = Struct.new(:place, :occurrence, :error) do
    def call = place.call
    def pair = [call, error]
    def arguments = [place.task, occurrence, error, call]
  end

  # Runs of a program one after the other, each in a process of its own.
  class Batch
    # Nil for a run that has not begun.
    attr_reader :runs, :reason

    # A fault for each run; nil: it is only watched.
    def initialize(program, faults)
      Dir.mktmpdir do |folder|
        plans = faults.map { |fault| fault ? fault.arguments.join(" ") : "watch" }
        File.write("#{folder}/plans", plans.map { |plan| "#{plan}\n" }.join)
        text, status = Open3.capture2e(program.environment, "#{BUILT}/reactor-faults", "#{folder}/report", program.library, SECONDS.to_s,
                                       "#{folder}/plans", "--", *program.command, folder, faults.size.to_s)
        @reason = text.lines.last.to_s.chomp unless status.success?
        @runs = Array.new(faults.size)
        sections(folder).each { |number, lines| @runs[number] = Run.new(lines, text_of("#{folder}/#{number}.out"), text_of("#{folder}/#{number}.err")) }
      end
    end

    private

    # The lines of each trial by its number.
    def sections(folder)
      lines = text_of("#{folder}/report").lines(chomp: true)
      lines.slice_before(/\Atrial /).to_h { |section| [section.first.split[1].to_i, section] }
    end

    def text_of(path) = File.exist?(path) ? File.read(path) : ""
  end

  # What one run did.
  class Run
    attr_reader :places

    def initialize(report, text, loud)
      @text = text
      @loud = loud
      @status = report.first.split(" ", 3).last
      @made = report.include?("made")
      @places = report.grep(/\Acall/).to_h do |line|
        _, count, task, call = line.split(" ", 4)
        [Place.new(call, task), count.to_i]
      end
    end

    def success? = @status == "exit status: 0"
    def made? = @made
    def description = "ends with #{@status}: #{@loud.lines.first(3).join.strip}; reports #{errors.inspect}"
    def calls = @places.keys.map(&:call).uniq
    def total = @places.values.sum

    # What must be the same in each run.
    def result = @result ||= lines(/\A\| /)

    def errors = @errors ||= lines(/\Aerror /).map { |line| line.split.drop(1) }

    # The name of a task of the program.
    def name_of(task)
      @names ||= lines(/\Atask /).to_h { |line| line.split.drop(1) }
      @names.fetch(task, task)
    end

    private

    def lines(pattern) = @text.lines(chomp: true).grep(pattern)
  end

  # What is wrong with a run in which a call has failed, beside one in which none has.
  class Verdict
    # What a task is left with if one of its descriptors is always ready.
    ALWAYS_READY = { "limit" => ["not ready", "ready"] }.freeze

    def initialize(program, fault, run, usual)
      @program = program
      @fault = fault
      @run = run
      @usual = usual
      @task = usual.name_of(fault.place.task)
    end

    def problems
      return [@run.description] unless @run.success?

      [difference, *wrong_errors, busy].compact
    end

    private

    def difference
      found = closed(@run.result)
      return if expected.include?(found)

      "is left with #{(found - expected.first).inspect} instead of #{(expected.first - found).inspect}"
    end

    # EPERM of epoll_ctl(2) means that the kernel does not poll the file: it is always ready. On a slow machine a wait lasts until
    # it is looked at again, by fstat(2) on poll, and is answered if that fails, because nothing else would end it.
    def expected
      usual, ready = ALWAYS_READY[@task]
      always = @usual.result.map { |line| line == "| first #{@task} #{usual.inspect}" ? "| first #{@task} #{ready.inspect}" : line }
      case @fault.call
      when "epoll_ctl ADD" then @fault.error == "EPERM" ? [always] : [@usual.result]
      when "epoll_ctl MOD", "fstat" then [@usual.result, always]
      else [@usual.result]
      end
    end

    # A close that fails is not made here; the kernel would close the descriptor nevertheless.
    def closed(result)
      return result unless @fault.call == "close"

      result.map { |line| line.sub("descriptors left 1", "descriptors left 0") }
    end

    # At most one, of the class that plain Ruby raises, in the task with the descriptor.
    def wrong_errors
      return [] if @run.errors.empty?

      task, error = @run.errors.first
      return [] if @run.errors.one? && of_the_resolver?(task, error)
      return ["EINTR is reported"] if @fault.error == "EINTR"
      return ["reports #{@run.errors.inspect}"] unless @run.errors.one? && classes.include?(error)

      # Which task raises the error of a call is known only if it is for one.
      Place::SHARED.include?(@task) || task == @task ? [] : ["raises in #{task}, the descriptor belongs to #{@task}"]
    end

    # getaddrinfo(3) reads files by the same calls, and turns their errors into its own.
    def of_the_resolver?(task, error) = task == "names" && error == "Socket::ResolutionError"

    # pthread_create(3) reports each failure of clone3(2) as EAGAIN, and Ruby as a ThreadError.
    def classes
      @fault.call == "clone3" ? %w[Errno::EAGAIN ThreadError] : ["Errno::#{@fault.error}", Errno.const_get(@fault.error).name]
    end

    def busy
      "makes #{@run.total} calls instead of #{@usual.total}" if @run.total > @usual.total + @program.slack
    end
  end
end

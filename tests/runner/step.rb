# frozen_string_literal: true

require_relative "../ruby/stacks"

module Runner
  # How many tests ended in each way.
  Tally = Struct.new(:passed, :failed, :skipped) do
    def self.zero = new(0, 0, 0)

    def +(other) = Tally.new(passed + other.passed, failed + other.failed, skipped + other.skipped)

    def to_s = "#{passed} passed, #{failed} failed, #{skipped} skipped"
  end

  # One command of a run: its dependencies, its time limit, and how its log is counted.
  class Step
    CONTEXT = 400 # lines of a failed step's log that are shown, because a crashed Ruby prints its whole address space

    PASSED = / = \d+\.\d+ s = [.S]$/ # the verbose line of minitest for a test that did not fail

    attr_reader :name, :command, :after, :lane, :group, :tally, :started, :ended, :log, :pid

    # @param after [Array<String>] names of the steps, or groups of steps, that have to end first
    # @param lane [Symbol, nil] steps of one lane run one by one
    # @param group [String, nil] the steps of a group are reported as one
    # @param limit [Integer] seconds after which the step counts as hung; no step takes as long on a loaded machine
    # @param count [Symbol] how the log is read: see {Counts}
    def initialize(name, *command, env: {}, after: [], lane: nil, group: nil, limit: 1800, count: :check)
      @name = name
      @command = command
      @env = env
      @after = after
      @lane = lane
      @group = group
      @limit = limit
      @count = count
    end

    def start(folder)
      @log = File.join(folder, "#{object_id}.log")
      @results = File.join(folder, "#{object_id}.results")
      @started = now
      # In a new process group, so that a hung step is ended with its child processes.
      @pid = Process.spawn({ "REACTOR_RESULTS" => @results }.merge(@env), *@command, in: File::NULL, %i[out err] => @log, pgroup: true)
      self
    end

    # Whether the step has ended. A step beyond its limit is ended, and its stacks are added to its log.
    def ended?
      return true if @status

      _, @status = Process.waitpid2(@pid, Process::WNOHANG)
      end_hung if @status.nil? && now - @started > @limit
      finish if @status
      !@status.nil?
    end

    # Kills the step.
    def abort
      return if @status || !@pid

      Process.kill(:KILL, -@pid)
      _, @status = Process.waitpid2(@pid)
    end

    def failed? = @tally.failed.positive?

    # The log of the step without the tests that passed.
    def details
      lines = File.readlines(@log, chomp: true).map(&:scrub).grep_v(PASSED)
      shown = lines.first(CONTEXT).map { |line| "    | #{line}" }
      shown << "    | (#{lines.size - CONTEXT} more lines)" if lines.size > CONTEXT
      ["    | #{name}", *shown, "    | #{@status}"].join("\n")
    end

    # The result of each test: see {Counts.results}.
    def results = File.exist?(@results) ? Counts.results(@results) : []

    private

    def finish
      @ended = now
      @tally = Counts.public_send(@count, self, @status)
    end

    def end_hung
      stacks = Stacks.of_tree(@pid)
      File.write(@log, "\nHUNG: not over after #{@limit} s\n#{stacks}\n", mode: "a")
      Process.kill(:KILL, -@pid)
      _, @status = Process.waitpid2(@pid)
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end

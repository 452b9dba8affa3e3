# frozen_string_literal: true

require "fileutils"
require "json"
require_relative "../../ruby/time_limit"

module Wide
  # How one test ended. The status: passed, skipped, failed, error, exit (the process ended in the middle of the test), hang
  # (ended by the limit) or crash (a signal killed the process).
  Outcome = Struct.new(:status, :message, :seconds)

  # One of CRuby's test files in one mode (plain, or a backend). If a test hangs or kills the process, the tests that are
  # left run in another process.
  class Run
    INSIDE = File.expand_path("inside.rb", __dir__)
    LIB = File.expand_path("../../../lib", __dir__)
    PLAIN = "plain"
    # The pseudo test for all that is before the first test, between two tests, and after the last one.
    OUTSIDE = "(outside of the tests)"
    WORST = %w[passed skipped failed error exit hang crash].freeze
    MOST_PROCESSES = 30 # of one run. The tests that are left then count as not run

    attr_reader :file, :mode, :outcomes, :log

    # @param place [Place] the Ruby, its sources, and a folder for notes and logs
    # @param limits [#call] the time limit of a test, by its name and the process that runs it
    # @param only [Array<String>, nil] the names of the only tests to run
    def initialize(place, file, mode, limits:, only: nil)
      @place = place
      @file = file
      @mode = mode
      @limits = limits
      @only = only
      @outcomes = {}
      @mark = "#{Process.pid}-#{object_id}"
      @log = File.join(place.folder, "#{mode}-#{file.tr("/", "-")}-#{object_id}.log")
      @notes = "#{@log}.notes"
      @processes = 0
      @read = 0
    end

    def plain? = @mode == PLAIN

    def start
      @processes += 1
      @current = nil
      @over = false
      begin_limit
      @pid = Process.spawn(environment, *@place.command, INSIDE, @file, chdir: @place.source, in: File::NULL,
                                                                        out: [@log, "a"], err: [:child, :out], pgroup: true)
      self
    end

    # Whether everything has run. Call it every now and then.
    def over?
      read_notes
      _, status = Process.waitpid2(@pid, Process::WNOHANG)
      return hung? if status.nil?

      read_notes
      sweep
      @over && @current.nil? ? note_exit(status) : died(status)
    end

    # Ends all its processes.
    def abort
      return unless @pid

      end_process
    end

    private

    def environment
      # A stray process is found by WIDE_MARK. CRuby's own limits allow for a loaded machine.
      { "WIDE_MARK" => @mark, "WIDE_SOURCE" => @place.source, "WIDE_NOTES" => @notes, "REACTOR_LIB" => LIB, "REACTOR_BACKEND" => nil,
        "WIDE_BACKEND" => (@mode unless plain?), "WIDE_SKIP" => list("skip", @outcomes.keys), "WIDE_ONLY" => @only && list("only", @only),
        "RUBY" => @place.command.first, "RUBY_TEST_TIMEOUT_SCALE" => "4", "LANG" => "C.UTF-8", "LC_ALL" => "C.UTF-8",
        "http_proxy" => nil, "https_proxy" => nil, "no_proxy" => nil, "MAKEFLAGS" => nil }
    end

    def list(kind, ids)
      "#{@log}.#{kind}".tap { |path| File.write(path, ids.map { |id| "#{id}\n" }.join) }
    end

    def read_notes
      return unless File.exist?(@notes)

      File.open(@notes) do |file|
        file.seek(@read)
        while (line = file.gets) && line.end_with?("\n")
          @read += line.bytesize
          take(JSON.parse(line, symbolize_names: true))
        end
      end
    end

    def take(note)
      if note[:begin]
        @current = note[:begin]
        begin_limit
      elsif note[:result] then worsen(note[:result], note[:status], note[:message])
      elsif note[:end]
        @outcomes[note[:end]]&.seconds = now - @since
        @current = nil
        begin_limit
      else
        @over = true
        begin_limit
      end
    end

    def begin_limit
      @since = now
      @limit = nil
    end

    def limit = @limit ||= @limits.(@current || OUTSIDE, @pid)

    def worsen(id, status, message)
      old = @outcomes[id]
      @outcomes[id] = Outcome.new(status, message, 0) if old.nil? || WORST.index(status) > WORST.index(old.status)
    end

    # Ends a process whose test is beyond its limit.
    # @return [Boolean] whether everything has run
    def hung?
      return false unless limit.over?

      end_process
      read_notes
      worsen(@current || OUTSIDE, "hang", "not over after #{(now - @since).round} s")
      go_on?
    end

    # The process ended in the middle of a test, or before the end.
    def died(status)
      worsen(@current || OUTSIDE, status.signaled? ? "crash" : "exit", "#{status.to_s.sub(/\Apid \d+ /, "")} #{last_words}")
      go_on?
    end

    # What the process last said: of a crash its first line and where it happened in C, otherwise the last error.
    def last_words
      lines = File.read(@log, mode: "rb").scrub("?").lines
      bug = lines.rindex { |line| line.include?("[BUG]") }
      return lines.grep(/Error|error|fatal/).last.to_s.strip[0, 300] unless bug

      frames = lines.drop(bug).drop_while { |line| !line.include?("C level backtrace") }.drop(1).take_while { |line| line != "\n" }
      [lines[bug], *frames.first(40)].join
    end

    def note_exit(status)
      # The exit status tells whether a test failed, which is known.
      worsen(OUTSIDE, status.signaled? ? "crash" : "passed", status.signaled? ? status.to_s : nil)
      true
    end

    # Starts a process for the tests that are left. If no test was running, that process would end in the same way.
    def go_on?
      return true if @current.nil? || @processes >= MOST_PROCESSES

      start
      false
    end

    def end_process
      kill_group
      Process.waitpid2(@pid)
      sweep
    rescue Errno::ECHILD
      sweep
    end

    # Ends the processes that the tests left behind: those of the process group, and those in groups of their own, which have
    # the mark in their environment.
    def sweep
      kill_group
      mark = "WIDE_MARK=#{@mark}\0"
      Dir.glob("/proc/[0-9]*/environ") do |path|
        Process.kill(:KILL, Integer(path[/\d+/])) if File.binread(path).include?(mark)
      rescue SystemCallError
        nil # ended meanwhile, or another user's
      end
    end

    def kill_group
      Process.kill(:KILL, -@pid)
    rescue Errno::ESRCH
      nil # all of it has ended
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end

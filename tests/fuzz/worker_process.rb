# frozen_string_literal: true

require "json"
require "rbconfig"
require_relative "../ruby/time_limit"

module Fuzz
  # A process that runs programs, see worker.rb. A program that hangs or crashes ends it, and the next one gets a new process.
  class WorkerProcess
    ROOT = File.expand_path("../..", __dir__)
    GRACE = 5 # seconds that an idle process has to tell that its program hangs

    # @param target [String] a backend, or "threads"
    def initialize(target)
      @target = target
    end

    # @param program [Program]
    # @param source [String]
    # @param limit [Numeric] seconds, which are more while the process has something to run
    # @return [Hash] the outcome
    def run(program, source, limit)
      start unless @pid
      @input.puts(JSON.generate(source:, ending: program.ending, limit:))
      read(limit + GRACE)
    rescue Errno::EPIPE
      ended
    end

    def close
      return unless @pid

      Process.kill(:KILL, -@pid)
      ended
    end

    private

    def start
      child_input, @input = IO.pipe
      @output, child_output = IO.pipe
      # A group of its own, so that what it leaves ends with it.
      @pid = Process.spawn(RbConfig.ruby, "-I", File.join(ROOT, "lib"), File.join(__dir__, "worker.rb"), @target,
                           in: child_input, out: child_output, err: File::NULL, pgroup: true)
      [child_input, child_output].each(&:close)
    end

    def read(seconds)
      limit = TimeLimit.new(seconds, @pid)
      line = @output.gets if limit.until { @output.wait_readable(limit.remaining) }
      outcome = line ? JSON.parse(line) : nil
      return outcome if outcome && !outcome["hang"] && outcome["left"].values_at("descriptors", "threads") == [[], 0]

      status = end_process
      outcome || (status.termsig == 9 ? { "hang" => true } : { "crash" => status.termsig || status.exitstatus })
    end

    # What a program has left does not concern the next one.
    def end_process
      Process.kill(:KILL, -@pid) if @output.wait_readable(0).nil? || !@output.eof?
      ended
    end

    def ended
      _, status = Process.wait2(@pid)
      begin
        Process.kill(:KILL, -@pid)
      rescue Errno::ESRCH
        nil # it has left no process
      end
      [@input, @output].each(&:close)
      @pid = nil
      status
    end
  end
end

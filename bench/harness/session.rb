# frozen_string_literal: true

require "json"
require "tempfile"

module Bench
  # One run in a process of its own, from its start to its line of JSON. The run may request, on a pipe, programs beside it (a
  # load, a process that writes to connections). They are started here, so that they are no part of the measured process.
  class Session
    # Why a run has no result: :hang or :failed, and what it wrote to stderr.
    Failure = Struct.new(:state, :words)

    PROGRAMS = {
      "load" => ->(port, *rest) { [File.join(EXAMPLES, "http_load"), "127.0.0.1:#{port}", *rest] },
      "ping" => ->(*arguments) { [Target::BASELINE, "ping", *arguments] }
    }.freeze

    # @param limit [Numeric] seconds after which a run is ended
    def initialize(command, limit:, environment: {})
      @command = command
      @environment = environment
      @limit = limit
      @beside = []
    end

    # @return [Hash, Failure]
    def result
      Tempfile.create("bench") do |out|
        Tempfile.create("bench") do |words|
          status = run(out, words)
          return Failure.new(:hang, "no result after #{@limit} s") unless status
          return Failure.new(:failed, said(words, status)) unless status.success?

          out.rewind
          return JSON.parse(out.read.lines.last, symbolize_names: true)
        end
      end
    end

    private

    # Runs the command with its output in files; nil if it had to be ended.
    def run(out, words)
      from_run, asks = IO.pipe
      answers, to_run = IO.pipe
      to_run.sync = true
      pid = Process.spawn(@environment, *@command, out: out, err: words, 3 => answers, 4 => asks, pgroup: true)
      [asks, answers].each(&:close)
      request_server = Thread.new { serve(from_run, to_run) }
      Process.detach(pid).join(@limit)&.value
    ensure
      finish(pid, request_server)
      [from_run, to_run].each { |io| io&.close }
    end

    # Ends the run with all its children, and the programs beside it.
    def finish(pid, request_server)
      kill(-pid) if pid
      request_server&.kill&.join
      @beside.each do |io|
        kill(io.pid)
        io.close
      end
    end

    def kill(pid)
      Process.kill(:KILL, pid)
    rescue Errno::ESRCH
      # It has ended already, as it usually has.
    end

    def serve(asks, answers)
      while (line = asks.gets)
        program, *arguments = JSON.parse(line)
        answers.puts(beside(program, arguments))
      end
    end

    # Starts a program and returns the first line it prints.
    def beside(program, arguments)
      io = IO.popen(PROGRAMS.fetch(program).call(*arguments).map(&:to_s), "r+")
      @beside << io
      io.gets || JSON.generate(error: "#{program} said nothing and left")
    rescue SystemCallError => error
      JSON.generate(error: error.message)
    end

    def said(words, status)
      words.rewind
      lines = words.read.scrub.lines.map(&:chomp).reject(&:empty?)
      lines.empty? ? status.to_s : lines.first(4).join(" · ")
    end
  end
end

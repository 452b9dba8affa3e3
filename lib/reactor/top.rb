# frozen_string_literal: true

require "io/console"
require "json"
require "optparse"
require "socket"
require_relative "clock"
require_relative "observe/health"
require_relative "observe/socket_place"
require_relative "version"
require_relative "top/snapshot"
require_relative "top/view"
require_relative "top/screen"

module Reactor
  # The executable reactor-top: a live view of the schedulers of another process, which has called {Reactor.observe}.
  #
  # @api private
  module Top
    USAGE = <<~TEXT
      usage: reactor-top [options] PID
      A live view of a process that has called Reactor.observe. Press q to quit.
    TEXT

    class << self
      # @param arguments [Array<String>]
      # @return [Integer] the exit status: 1 if the process cannot be observed, 2 for wrong arguments
      def run(arguments)
        pid, options = parse(arguments)
        raise Failure, "the live view needs a terminal; see --once" unless options[:once] || ($stdin.tty? && $stdout.tty?)

        snapshot = Snapshot.at(pid, options[:wait]) or raise Failure, format("process %d has not answered for %g s", pid, options[:wait])
        if options[:once]
          puts options[:json] ? JSON.pretty_generate(snapshot.to_h) : View.new([snapshot]).lines
        else
          Screen.new(pid, options[:interval], snapshot).run
        end
        0
      rescue OptionParser::ParseError => error
        warn "reactor-top: #{error.message}", USAGE
        2
      rescue Failure => error
        warn "reactor-top: #{error.message}"
        1
      rescue SignalException
        130
      end

      private

      def parse(arguments)
        options = { interval: 1.0, wait: 3.0 }
        parser = OptionParser.new(USAGE)
        parser.on("--once", "print one snapshot, counted from the start of the schedulers, and exit")
        parser.on("--json", "with --once: as JSON")
        parser.on("--interval SECONDS", Float, "between two snapshots (1)")
        parser.on("--wait SECONDS", Float, "for the first answer (3)")
        parser.on("--version") { puts VERSION; exit }
        rest = parser.parse(arguments, into: options)
        raise OptionParser::InvalidArgument, "exactly one process ID is required" unless rest.size == 1 && rest.first.match?(/\A[1-9]\d{0,9}\z/)
        raise OptionParser::InvalidArgument, "--json needs --once" if options[:json] && !options[:once]
        raise OptionParser::InvalidArgument, "--wait must be more than 0 s" unless options[:wait].positive?
        raise OptionParser::InvalidArgument, "--interval must be at least 0.05 s" if options[:interval] < 0.05

        [Integer(rest.first), options]
      end
    end
  end
end

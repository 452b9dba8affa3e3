# frozen_string_literal: true

require "json"
require "optparse"
require_relative "version"
require_relative "top/source"
require_relative "top/view"
require_relative "top/window"

module Reactor
  # The executable reactor-top: a live view of the schedulers of another process, which has called {Reactor.observe}.
  #
  # @api private
  module Top
    USAGE = <<~TEXT
      usage: reactor-top [options] PID
      A live view of a process that has called Reactor.observe. q ends it.
    TEXT

    class << self
      # @param arguments [Array<String>]
      # @return [Integer] the exit status: 1 if the process cannot be looked at, 2 for wrong arguments
      def run(arguments)
        pid, options = parse(arguments)
        source = Source.new(pid, options.fetch(:wait, Source::LIMIT))
        return once(source, json: options[:json]) if options[:once]
        raise Source::Failure, "the live view needs a terminal; see --once" unless $stdin.tty? && $stdout.tty?

        Window.new(source, options.fetch(:interval, 1.0)).run
        0
      rescue OptionParser::ParseError => error
        warn "reactor-top: #{error.message}", USAGE
        2
      rescue Source::Failure => error
        warn "reactor-top: #{error.message}"
        1
      rescue Interrupt
        130
      end

      private

      def parse(arguments)
        options = {}
        parser = OptionParser.new(USAGE)
        parser.on("--once", "print one look, counted from the start of the schedulers, and end") { options[:once] = true }
        parser.on("--json", "with --once: as JSON") { options[:json] = true }
        parser.on("--interval SECONDS", Float, "between two looks (1)") { |seconds| options[:interval] = seconds }
        parser.on("--wait SECONDS", Float, "for the first answer (3)") { |seconds| options[:wait] = seconds }
        parser.on("--version") { puts VERSION; exit }
        rest = parser.parse(arguments)
        raise OptionParser::InvalidArgument, "one process id is needed" unless rest.size == 1 && rest.first.match?(/\A[1-9]\d{0,9}\z/)
        raise OptionParser::InvalidArgument, "--json needs --once" if options[:json] && !options[:once]
        raise OptionParser::InvalidArgument, "the wait is longer than 0 s" unless options.fetch(:wait, 1).positive?
        raise OptionParser::InvalidArgument, "the interval is at least 0.05 s" if options.fetch(:interval, 1) < 0.05

        [Integer(rest.first), options]
      end

      def once(source, json:)
        look = source.look
        puts json ? JSON.pretty_generate(look.to_h) : View.new([look]).lines
        0
      end
    end
  end
end

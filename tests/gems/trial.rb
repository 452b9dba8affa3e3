# frozen_string_literal: true

require "json"
require "open3"
require "rbconfig"
require "tmpdir"
require_relative "gate"
require_relative "row"
require_relative "servers"

module Gems
  # Runs rows in processes of their own, with one server of each kind for all of them.
  class Trial
    COUNT = 20
    # Seconds for a row.
    LIMIT = 40

    class Failed < RuntimeError; end

    # What one row did in one mode: the operations that the server saw at once, and the first error.
    Outcome = Struct.new(:overlap, :version, :error, keyword_init: true) do
      def ok? = overlap == COUNT && error.nil?
    end

    # Runs the block with a trial, and stops its servers.
    def self.run
      trial = new
      yield trial
    ensure
      trial&.stop
    end

    def initialize
      @servers = {}
      @absences = {}
      @versions = {}
    end

    def stop = @servers.each_value(&:stop)

    # @return [String, nil] why the row cannot be run here
    def absence(row)
      [row.server, *row.beside].filter_map { |kind| SERVERS.fetch(kind).absence }.first || (@absences[row.requires] ||= [missing_library(row)]).first
    end

    # @return [Outcome] of a process that hangs, the error says so
    # @raise [Failed] the process failed
    def measure(row, mode)
      gate = Gate.new(server(row.server).port, COUNT)
      said = run_child(row, mode, gate.port)
      Outcome.new(overlap: gate.overlap, error: said["errors"].first, version: said["version"])
    ensure
      gate&.close
    end

    # @return [String] the version that the server of the row tells
    def server_version(row) = @versions[kind_shown(row)] ||= SERVERS.fetch(kind_shown(row)).version

    # @return [String] its program
    def server_program(row) = SERVERS.fetch(kind_shown(row))::PROGRAM

    private

    def kind_shown(row) = row.beside || row.server

    def server(kind)
      @servers[kind] ||= SERVERS.fetch(kind).start
    end

    def missing_library(row)
      out, status = Open3.capture2e(environment, *ruby, "-W0", "-e", row.requires.map { |library| "require #{library.inspect}; " }.join)
      "#{row.requires.join(", ")} cannot be loaded on Ruby #{RUBY_VERSION[/\d+\.\d+/]}: #{out[/cannot load such file -- \S+/] || out.lines.first.to_s.strip[0, 100]}" unless status.success?
    end

    def ruby = [RbConfig.ruby, "-I", File.expand_path("../../lib", __dir__)]

    # bin/setup --gems unpacks what it cannot install.
    def environment
      unpacked = Dir[File.expand_path("../../tmp/gems/usr/lib/*/rubygems-integration/#{RbConfig::CONFIG["ruby_version"]}", __dir__)]
      { "GEM_PATH" => [*Gem.path, *unpacked].join(":") }
    end

    def run_child(row, mode, port)
      beside = server(row.beside || row.server)
      command = [*ruby, File.join(__dir__, "run_row.rb"), row.name, mode.to_s, port.to_s, beside.directory, beside.port.to_s]
      Open3.popen2e(environment, *command, pgroup: true) do |input, output, thread|
        input.close
        limit = TimeLimit.new(LIMIT, thread.pid, extension: 3)
        text = Thread.new { output.read }
        sleep 0.02 until text.join(0.02) || limit.over?
        next { "errors" => ["hangs"] } unless text.join(0)

        json = text.value.lines.last
        raise Failed, "#{row.name} (#{mode}) ended without a result: #{text.value[-1500..] || text.value}" unless thread.value.success? && json

        JSON.parse(json)
      ensure
        Process.kill(:KILL, -thread.pid) if thread.alive?
        text&.join
      end
    end
  end
end

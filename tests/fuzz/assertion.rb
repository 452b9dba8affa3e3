# frozen_string_literal: true

require "fileutils"
require "json"
require_relative "stage"

module Fuzz
  # For tests that bin/fuzz has printed: a program gives the same on threads and on a backend.
  module Assertion
    # The program runs twice, each time in a forked child whose main thread it has for itself.
    def assert_same_as_on_threads(ending: "finish", backend: ReactorTest::BACKEND.to_s, &program)
      needs_fork
      assert_equal outcome_in_child(nil, ending, program), outcome_in_child(backend, ending, program)
    end

    # @return [Hash] the outcome; of a program that hangs, what it had done until then
    def outcome_in_child(backend, ending, program)
      reader, writer = IO.pipe
      pid = fork { run_stage(Stage.new(backend), ending, program, writer) }
      writer.close
      text = reader.read
      _, status = Process.wait2(pid)
      text.empty? ? { "crash" => status.to_s } : JSON.parse(text)
    ensure
      [reader, writer].each { |io| io.close unless io.closed? }
    end

    private

    def run_stage(stage, ending, program, writer)
      Thread.report_on_exception = false
      Timeout.timeout(60) { nil } # Ruby makes the thread of Timeout once in a process
      Thread.new do
        sleep ReactorTest::TEST_TIMEOUT
        writer.write(JSON.generate(stage.partly))
        Process.exit!(1)
      end
      writer.write(JSON.generate(stage.run(program, ending: ending)))
    ensure
      Process.exit!(0)
    end
  end
end

# frozen_string_literal: true

require_relative "printer"
require_relative "worker_process"

module Fuzz
  # Runs programs on threads and on the backends, and compares their outcomes.
  class Runner
    THREADS = "threads"
    BASE_LIMIT = 5 # seconds until a program that takes no time on threads counts as hung
    SLOWER = 10    # times as long may it take on a backend

    # What was found: the outcome on threads, and on the backend that differs.
    Difference = Struct.new(:program, :backend, :expected, :actual, :limit) do
      # @return [Symbol] :hang, :crash, :left, :logs
      def kind
        %i[hang crash].find { |what| actual.key?(what.to_s) } || (expected["logs"] == actual["logs"] && expected["shares"] == actual["shares"] ? :left : :logs)
      end
    end

    # @param backends [Array<String>]
    def initialize(backends)
      @backends = backends
      @workers = [THREADS, *backends].to_h { |target| [target, WorkerProcess.new(target)] }
    end

    # @return [Hash] the outcome on this target
    def outcome(program, target, limit: BASE_LIMIT) = @workers.fetch(target).run(program, Printer.source(program), limit)

    # @param only [Array<String>]
    # @param base [Numeric] seconds for a program that takes no time on threads
    # @return [Array<Difference>, nil] nil if the program does not end on threads
    def differences(program, only = @backends, base: BASE_LIMIT)
      started = now
      expected = outcome(program, THREADS, limit: base)
      return if expected["hang"] || expected["crash"]

      limit = base + SLOWER * (now - started)
      found = only.map { |backend| Thread.new { [backend, outcome(program, backend, limit:)] } }.map(&:value)
      found.reject { |_, actual| actual == expected }.map { |backend, actual| Difference.new(program, backend, expected, actual, limit) }
    end

    # Runs both sides again.
    #
    # @return [Integer, nil] how many times the difference came again; nil if the outcome on threads differs from run to run
    def repeated(difference, times)
      expected = Array.new(times) { outcome(difference.program, THREADS, limit: difference.limit) }
      return unless expected.uniq == [difference.expected]

      Array.new(times) { outcome(difference.program, difference.backend, limit: difference.limit) }.count { |actual| actual != difference.expected }
    end

    def close = @workers.each_value(&:close)

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end

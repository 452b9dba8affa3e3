# frozen_string_literal: true

require "reactor/testing"
require_relative "programs"
require_relative "../ruby/seeds"

# The command line of bin/check simulation: see tests/simulation/check.
options = Seeds.options(ARGV, "seeds", seed: 0)
programs = Programs::ALL.select { |name| ARGV.empty? || ARGV.any? { |word| name.to_s.include?(word) } }
abort "no such program; there are: #{Programs::ALL.join(", ")}" if programs.empty?
passed = programs.map do |name|
  seeds = Seeds.new(**options)
  seeds.run do |seed|
    Reactor::Testing.simulate(seed: seed, twice: true) { |world| Programs.public_send(name, world) }
  rescue StandardError => error
    seeds.failed("#{error.class}: #{error.message[/\A[^\n]*/]}", seed)
  end
  puts "#{name}: #{seeds.failed_times} of #{seeds.begun} seeds fail"
  puts seeds.report { |seed| "bin/check simulation #{name} --seed #{seed} --seeds 1" }
  seeds.failures.empty?
end
exit(passed.all?)

# frozen_string_literal: true

require_relative "helper"
ReactorTest.optional "openssl"
require_relative "../simulation/bug"
require_relative "../simulation/programs"

# What the simulation finds, and what it does not: tests/simulation has the programs, and bin/check simulation tries more
# seeds.
class TestSimulatedPrograms < ReactorTest
  BACKEND_OF_SIMULATION = %i[uring iocp].include?(BACKEND) ? nil : BACKEND
  # Seeds of a corrected twin, and of a program.
  TWINS = 15
  PROGRAMS = 4
  # Seeds that a planted bug may take.
  MOST = 400

  def setup
    super
    skip "no UNIX sockets" unless defined?(UNIXSocket) && UNIXSocket.respond_to?(:pair)
  end

  Bugs::ALL.each_key do |name|
    define_method("test_#{name.tr(" -", "_")}_is_found_and_its_twin_passes") do
      error = assert_raises(StandardError) { run_plain { Bugs.explore(name, false, runs: MOST, backend: BACKEND_OF_SIMULATION) } }
      again = error.message.match(/\(simulated with seed: (\d+), yields: (\d+), faults: (\d+)\)/).captures.map(&:to_i)
      options = %i[seed yields faults].zip(again).to_h
      repeated = assert_raises(error.class) { run_plain { Bugs.simulate(name, false, backend: BACKEND_OF_SIMULATION, **options) } }
      assert_equal error.message.lines.first, repeated.message.lines.first
      assert_nil run_plain { Bugs.explore(name, true, runs: TWINS, backend: BACKEND_OF_SIMULATION) }
    end
  end

  Programs::ALL.each do |name|
    define_method("test_#{name}_keeps_its_promises") do
      skip "the redis gem is missing" if name == :redis && !loads?("redis")
      run = ->(world) { Programs.public_send(name, world) }
      PROGRAMS.times { |seed| run_plain { Reactor::Testing.simulate(seed: seed, twice: true, backend: BACKEND_OF_SIMULATION, &run) } }
    end
  end

  def loads?(library)
    require library
  rescue LoadError
    false
  else
    true
  end
end

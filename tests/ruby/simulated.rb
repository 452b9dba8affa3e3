# frozen_string_literal: true

require_relative "helper"
require "reactor/testing"

# A base class for tests of Reactor::Testing.simulate.
class SimulationTest < ReactorTest
  SEEDS = (0...6)
  # The backend that is used instead of one whose order a seed does not determine.
  SIMULATED = %i[uring iocp].include?(BACKEND) ? nil : BACKEND

  def setup
    super
    skip "no UNIX sockets" unless defined?(UNIXSocket) && UNIXSocket.respond_to?(:pair)
  end

  # Runs on a new thread; no descriptor may be left.
  def simulate(seed = 1, **options, &block)
    before = descriptors
    trace = run_plain { Reactor::Testing.simulate(seed: seed, backend: SIMULATED, **options) { |world| instance_exec(world, &block) } }
    assert_equal [], leaked_descriptors(before)
    trace
  end

  def explore(**options, &block)
    run_plain { Reactor::Testing.explore(backend: SIMULATED, **options) { |world| instance_exec(world, &block) } }
  end

  # A server that runs the block for each connection, and a client, with several seeds. Returns the result of the client's block
  # for each seed.
  def between(server, client, seeds: SEEDS, **link)
    seeds.map do |seed|
      answer = nil
      simulate(seed) do |world|
        world.link(**link)
        world.host("server") do
          listener = TCPServer.new("server", 80)
          loop { Fiber.schedule(listener.accept) { |socket| instance_exec(socket, world, &server) } }
        end
        world.client("client") { answer = instance_exec(world, &client) }
      end
      answer
    end
  end

  def raised
    yield
    nil
  rescue StandardError => error
    error.class
  end
end

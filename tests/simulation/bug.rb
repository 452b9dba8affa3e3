# frozen_string_literal: true

require "reactor/testing"
require "timeout"

# Small programs with a defect each, and their mended twins: what a simulation has to find. Each file of bugs/ has one, which shows by what
# a world decides: the order of messages, lost answers, the order of fibers, partitions.
module Bugs
  # @return [Hash{String => Proc}] each is given the world, and whether it is mended
  ALL = {}

  class << self
    def define(name, &program) = ALL[name] = program

    # A host that answers line by line: with what the block returns, nil: not at all.
    def serve(world, host)
      world.host(host) do
        listen(host) { |line| yield line }
      end
    end

    def listen(host)
      listener = TCPServer.new(host, 80)
      loop do
        Fiber.schedule(listener.accept) do |socket|
          while (line = socket.gets)
            answer = yield line.chomp
            socket.puts(answer) if answer
          end
        rescue SystemCallError
          nil # the peer has gone
        ensure
          socket.close
        end
      end
    end

    # @return [String] the answer
    # @raise [EOFError, SystemCallError] there is none
    def ask(host, line)
      TCPSocket.open(host, 80) do |socket|
        socket.puts(line)
        socket.gets&.chomp || raise(EOFError)
      end
    end

    def simulate(name, mended, **options) = Reactor::Testing.simulate(**options) { |world| ALL.fetch(name).call(world, mended) }

    def explore(name, mended, **options) = Reactor::Testing.explore(**options) { |world| ALL.fetch(name).call(world, mended) }
  end
end

Dir[File.join(__dir__, "bugs", "*.rb")].each { |file| require file }

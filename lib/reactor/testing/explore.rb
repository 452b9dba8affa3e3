# frozen_string_literal: true

require_relative "simulation"

module Reactor
  module Testing
    # A failure that {Testing.explore} has found, and the least that it needs.
    #
    # @api private
    class Explore
      # Lines of the timeline in the message.
      LINES = 60
      private_constant :LINES

      # @param seed [Integer]
      # @param world [World] has failed
      def initialize(seed, world, options, block)
        @seed = seed
        @world = world
        @options = options
        @block = block
      end

      # Finds the least number of forced yields, and then of faults, with which it still fails so.
      def shrink
        least(:yields, @world.yields)
        least(:faults, @world.network.faults)
        self
      end

      # @return [Exception] what the world has failed with; the message has what brings it again, and the timeline
      def error
        found = @world.failure
        again = { seed: @seed, **@options.slice(:yields, :faults) }.map { |name, value| "#{name}: #{value}" }.join(", ")
        found.exception("#{found.message}\n(simulated with #{again})\n\n#{@world.trace.timeline(LINES)}")
      end

      private

      # Tries 0, 1, 2, 4 and so on. A smaller number may pass all the same: each is another course of events.
      #
      # @param most [Integer] with so many it fails
      def least(name, most)
        tried = [0, *(0..most.bit_length).map { |power| 1 << power }].select { |limit| limit < most }
        count = tried.find { |limit| fails?(**@options, name => limit) } || most
        @options = { **@options, name => count }
        fails?(**@options) if count == most
      end

      def fails?(**options)
        world = Simulation.run(@seed, true, **options, &@block)
        fails = world.failure.instance_of?(@world.failure.class)
        @world = world if fails
        fails
      end
    end
    private_constant :Explore

    class << self
      # Runs {simulate} with one seed after the other, up to the first failure. That one is run again with fewer forced yields and fewer
      # faults, as long as it fails with the same class of error. The message has the least of both, and the timeline of that run.
      #
      # @param runs [Integer] seeds at most
      # @param seed [Integer] the first one
      # @param until [Numeric, nil] see {simulate}
      # @param options see {simulate}
      # @yieldparam world [World] another one for each seed: what the program shares has to be made in the block
      # @return [nil] if no seed fails
      # @raise what the first world fails with; the message names the seed
      # @raise (see simulate)
      def explore(runs:, seed: 0, until: nil, **options, &block)
        raise ArgumentError, "no block given" unless block
        raise ArgumentError, "runs is a positive Integer, not #{runs.inspect}" unless Integer === runs && runs.positive?

        options[:limit] = binding.local_variable_get(:until)
        runs.times do |run|
          $stderr.print("\r#{run} of #{runs} ") if $stderr.tty?
          world = Simulation.run(seed + run, false, **options, &block)
          raise Explore.new(seed + run, world, options, block).shrink.error if world.failure
        end
        nil
      end
    end
  end
end

# frozen_string_literal: true

require_relative "simulation"

module Reactor
  module Testing
    # Shrinks a failure found by {Testing.explore}.
    #
    # @api private
    class Explore
      # @param seed [Integer]
      # @param world [World] the failed one
      def initialize(seed, world, options, block)
        @seed = seed
        @world = world
        @options = options
        @block = block
      end

      # Minimizes the number of forced yields, then the number of faults, for which the world still fails in the same way.
      def shrink
        least(:yields, @world.yields)
        least(:faults, @world.network.faults)
        self
      end

      # @return [Exception]
      def error = Simulation.error(@world, @seed, @options)

      private

      # Tries 0, 1, 2, 4 and so on, then numbers between the first that fails and the one before it. A smaller number that it does
      # not try might fail too, because each number is another course of events.
      #
      # @param most [Integer] a number that is known to fail
      def least(name, most)
        tries = ->(limit) { fails?(**@options, name => limit) }
        tried = [0, *(0..most.bit_length).map { |power| 1 << power }].select { |limit| limit < most } << most
        count = tried.find(&tries) || most
        @options = { **@options, name => ((count / 2) + 1...count).bsearch(&tries) || count }
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
      # Runs {simulate} with successive seeds until one fails. A failing seed is run again with fewer forced yields and fewer
      # faults, as long as it fails with the same class of error. The message includes the lowest numbers of both, and the
      # timeline of that run.
      #
      # @param runs [Integer] maximum number of seeds
      # @param seed [Integer] the first one, at least 0
      # @param until [Numeric, nil] see {simulate}
      # @param options see {simulate}
      # @yieldparam world [World] a new one for each seed, so create the program's shared objects in the block
      # @return [nil] if no seed fails
      # @raise the error of the first world that fails; the message includes the seed
      # @raise (see simulate)
      def explore(runs:, seed: 0, until: nil, **options, &block)
        raise ArgumentError, "no block given" unless block

        Checks.count(:runs, runs)
        Checks.count(:seed, seed, 0)
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

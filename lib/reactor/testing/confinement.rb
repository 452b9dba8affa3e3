# frozen_string_literal: true

require "securerandom"

module Reactor
  module Testing
    # Refuses what a seed could not reproduce in a simulated program: threads, children and datagrams. Provides random numbers
    # determined by the seed.
    #
    # @api private
    module Confinement
      # Code that is exempt: ours, for files, and test frameworks, which run diff(1) when an assertion has failed.
      TRUSTED = %r{\A#{Regexp.escape(File.dirname(__dir__))}/|/gems/(minitest|test-unit|rspec-\w+)-[^/]+/}
      # Kernel#rand has one seed per process.
      ONE = Thread::Mutex.new
      private_constant :TRUSTED, :ONE

      # What {Testing.simulate} can allow.
      REFUSED = %i[threads children datagrams].freeze

      class << self
        # @param what [Symbol] one of {REFUSED}
        # @return [World, nil] the world that allows it
        # @raise [NotImplementedError] in a fiber of a host, unless the world allows it
        def refuse(what)
          world = Host::Boot.current&.world or return
          return world if world.allow.include?(what)
          return if caller_locations(2, 1).first&.path&.match?(TRUSTED)

          raise NotImplementedError, "the order of #{what} cannot be reproduced by a seed (to give that up, use allow: [:#{what}])"
        end

        # @param world [World, nil] holds its clock as long as the thread may wake a fiber
        # @return [Thread]
        def running(world, thread)
          world&.scheduler&.allowed_threads&.push(thread)
          thread
        end

        # @return [Random, nil] the random source of the world
        def random = Host::Boot.current&.world&.entropy

        # Runs the block with Kernel#rand seeded, one block at a time. Afterwards, Kernel#rand continues with a sequence that depends
        # on where the earlier one was.
        def seeded(seed)
          ONE.synchronize do
            after = Random.rand(1 << 128)
            srand(seed)
            yield
          ensure
            srand(after) if after
          end
        end
      end

      # Prepended to the singleton class of Thread.
      module Threads
        def new(...) = Confinement.running(Confinement.refuse(:threads), super)
        def start(...) = Confinement.running(Confinement.refuse(:threads), super)
        def fork(...) = Confinement.running(Confinement.refuse(:threads), super)
      end

      # Prepended to Fiber's singleton class.
      module Schedulers
        def set_scheduler(scheduler)
          raise FiberError, "a host runs in the scheduler of its world" if scheduler && Host::Boot.current

          super
        end
      end

      # Prepended to Ractor's singleton class.
      module Ractors
        def new(...) = (Confinement.refuse(:threads); super)
      end

      # Prepended to Process's singleton class.
      module Children
        def spawn(...) = (Confinement.refuse(:children); super)
        def fork(...) = (Confinement.refuse(:children); super)
        def detach(...) = Confinement.running(Confinement.refuse(:children), super)
      end

      # Prepended to Kernel's singleton class.
      module Commands
        def spawn(...) = (Confinement.refuse(:children); super)
        def fork(...) = (Confinement.refuse(:children); super)
        def system(...) = (Confinement.refuse(:children); super)
        def `(command) = (Confinement.refuse(:children); super)
        def srand(seed = Random.new_seed) = super
      end

      # Prepended to Kernel, where all of them are private.
      PrivateCommands = Commands.clone.tap { |commands| commands.__send__(:private, *commands.instance_methods) }

      # Prepended to IO's singleton class.
      module Popen
        def popen(...) = (Confinement.refuse(:children); super)
      end

      # Prepended to UDPSocket.
      module Datagrams
        def initialize(...) = (Confinement.refuse(:datagrams); super)
      end

      # Prepended to Socket.
      module DatagramSockets
        def initialize(domain, type = nil, *)
          Confinement.refuse(:datagrams) if type == Socket::SOCK_DGRAM || type.to_s.end_with?("DGRAM")
          super
        end
      end

      # Prepended to Random's singleton class.
      module RandomSeeds
        def new(*seed) = seed.empty? && (source = Confinement.random) ? super(source.rand(1 << 64)) : super
        def srand(seed = Random.new_seed) = super
        def new_seed = Confinement.random&.rand(1 << 128) || super
        def urandom(size) = Confinement.random&.bytes(size) || super
      end

      # Prepended to SecureRandom's singleton class.
      module SecureNumbers
        def bytes(size) = Confinement.random&.bytes(size || 16) || super
        def gen_random(size) = Confinement.random&.bytes(size) || super
      end
    end
    private_constant :Confinement
  end
end

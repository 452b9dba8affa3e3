# frozen_string_literal: true

require_relative "../patches"
require_relative "../run"
require_relative "../scheduler"
require_relative "argument_checks"
require_relative "confinement"
require_relative "hooks"
require_relative "sockets"
require_relative "world"

module Reactor
  module Testing
    # One run of a {World}.
    #
    # @api private
    module Simulation
      # When each world starts: 2026-01-01, in seconds.
      START = 1_767_225_600
      # Number of timeline lines in the message of an error.
      LINES = 60
      # Backends that complete operations in an order that the seed does not determine.
      UNORDERED = %i[uring iocp].freeze

      ROWS = [
        [TCPSocket, Sockets::TCPSocketConnect], [TCPServer, Sockets::TCPServerBind], [TCPServer, Sockets::Accept],
        [Socket, Sockets::Accept], [Socket, Sockets::SocketConnect], [Socket.singleton_class, Sockets::SocketTCP],
        [BasicSocket, Sockets::Addresses], [IPSocket, Sockets::IPAddresses], [IPSocket.singleton_class, Sockets::AddressLookup],
        [Addrinfo.singleton_class, Sockets::Lookup], [Thread.singleton_class, Confinement::Threads],
        [Fiber.singleton_class, Confinement::Schedulers], [Ractor.singleton_class, Confinement::Ractors],
        [Process.singleton_class, Confinement::Children],
        [Kernel.singleton_class, Confinement::Commands], [Kernel, Confinement::PrivateCommands],
        [IO.singleton_class, Confinement::Popen], [UDPSocket, Confinement::Datagrams], [Socket, Confinement::DatagramSockets],
        [Random.singleton_class, Confinement::RandomSeeds], [SecureRandom.singleton_class, Confinement::SecureNumbers]
      ].freeze

      # The patches of a simulation: see {Patches}. Outside a host they do what Ruby does.
      PATCHES = Patches::PatchSet.new
      PATCHES.define_singleton_method(:install) { ROWS.each { |owner, with| owner.prepend(with) } && Watcher.prepend(WatcherOfHost) }

      # Ends the other fibers of a run.
      Ended = Class.new(Exception) # rubocop:disable Lint/InheritException -- no rescue in the program may catch it

      private_constant :START, :LINES, :UNORDERED, :ROWS, :PATCHES, :Ended

      class << self
        # @param complete [Boolean] whether to keep all events in the trace
        # @return [World] after its end; its `failure` tells the outcome
        def run(seed, complete, at: START, backend: nil, **options, &)
          raise "this thread already has a scheduler" if Fiber.scheduler

          ArgumentChecks.check(seed, at, **options)
          Patches.install(Patches::VIRTUAL_TIME, PATCHES)
          random = Random.new(seed)
          world = nil
          scheduler = scheduler(backend, random, ->(error, _) { (Host::Boot.current || world).fail(error) })
          world = World.new(scheduler, random, complete, **options)
          Confinement.seeded(random.rand(1 << 64)) { run_world(scheduler, world, at, &) }
          raise world.failure if world.interrupted?

          world
        end

        # @return [Exception] the world's; its message includes the arguments that reproduce it, and the timeline
        def error(world, seed, options)
          again = { seed: seed, **options.slice(:yields, :faults).compact }.map { |name, value| "#{name}: #{value}" }.join(", ")
          annotated(world.failure, "(simulated with #{again})\n\n#{world.trace.timeline(LINES)}")
        end

        private

        # @return [Exception] a copy of the error whose message ends with the note
        def annotated(error, note)
          message = "#{Trace.text(error.message)}\n#{note}"
          copy = begin
            error.exception(message)
          rescue StandardError # it is frozen, or has an `exception` of its own
            error
          end
          return copy if copy.is_a?(error.class) && copy.message.include?(note)

          error.clone(freeze: false).tap { |noted| noted.define_singleton_method(:message) { message } }
        end

        def scheduler(backend, random, on_error)
          raise NotImplementedError, "a simulation needs UNIX sockets" unless defined?(UNIXSocket) && UNIXSocket.respond_to?(:pair)

          chosen = backend&.to_sym || Reactor.backend
          raise ArgumentError, "a seed does not determine the order of backend #{chosen}" if backend && UNORDERED.include?(chosen)

          chosen = Reactor.backends.except(*UNORDERED).key(true) if UNORDERED.include?(chosen)
          raise NotImplementedError, "Windows has no simulation: its only backend decides the order itself" unless chosen
          scheduler = Scheduler.new(backend: chosen, policy: :never, on_error: on_error)
          [Hooks, SimulationHooks].each { |hooks| scheduler.singleton_class.prepend(hooks) }
          scheduler.shuffle(random.rand(1 << 62))
          scheduler
        end

        def run_world(scheduler, world, at, &)
          Patches::VirtualTime.clock = Clock.new(scheduler, 0, at)
          Running.run(scheduler) do
            world.run(&)
            raise Ended
          end
        rescue Ended
          nil
        rescue Exception => error # rubocop:disable Lint/RescueException -- also failed assertions
          world.failure ||= error
        ensure
          Patches::VirtualTime.clock = nil
          world.network.close # only after its fibers have ended, because they would notice
        end
      end
    end
    private_constant :Simulation

    class << self
      # Runs a whole program in a simulated world on this thread: hosts, connected by a network, in virtual time. Everything that
      # a scheduler or a network may choose is chosen by the seed: which fiber runs next, forced yields at input, output and
      # sleeps, how long messages take, and which are dropped. So the same seed always gives the same course of events, in every
      # process; docs/testing-your-code.md lists the limits.
      #
      #   Reactor::Testing.simulate(seed: 17) do |world|
      #     world.host("db") { server = TCPServer.new("db", 5432); … }
      #     world.client("app") { TCPSocket.open("db", 5432) { … } }
      #     world.at(30) { world.partition("app", "db") }
      #   end
      #
      # @param seed [Integer] at least 0
      # @param until [Numeric, nil] virtual seconds after which the world ends; nil: its clients must end within a day
      # @param twice [Boolean] whether to run twice and compare the traces
      # @option options [Time, Numeric] :at initial time of the clocks
      # @option options [Integer, nil] :yields maximum number of forced yields; nil: no limit
      # @option options [Integer, nil] :faults maximum number of dropped, reset and split messages; nil: no limit
      # @option options [Array<Symbol>] :allow what to leave real instead of refusing it: :threads, :children, :datagrams (UDP)
      # @option options [Symbol, String, nil] :backend see {Reactor.backends}; not :uring or :iocp, which complete operations in
      #   an order that the seed does not determine
      # @yieldparam world [World]
      # @return [Trace]
      # @raise what the block, a host or a check raises; the message includes the seed and the end of the timeline
      # @raise [Stuck] clients wait for something that never happens, or have not ended within a day and there is no `until:`
      # @raise [ArgumentError, TypeError, RangeError] wrong arguments, including the backends :uring and :iocp; there is neither a client
      #   nor `until:`
      # @raise [RuntimeError] this thread already has a scheduler; with `twice:`, the traces diverge
      # @raise [NotImplementedError] a host starts a thread or a child, or opens a UDP socket; this platform has no UNIX sockets
      def simulate(seed:, twice: false, until: nil, **options, &block)
        raise ArgumentError, "no block given" unless block

        options[:limit] = binding.local_variable_get(:until)
        world, again = Array.new(twice ? 2 : 1) { Simulation.run(seed, twice, **options, &block) }
        divergence = again && world.trace.difference(again.trace)
        what = "seed #{seed} does not determine everything: two runs diverge here\n#{divergence}"
        raise what, cause: world.failure || again.failure if divergence
        raise Simulation.error(world, seed, options) if world.failure

        world.trace
      end
    end
  end
end

# frozen_string_literal: true

module Reactor
  module Testing
    # A machine in a {World}: a name, an address, and a block, its program.
    #
    # @api private
    class Host
      # Ends a fiber that crashes its own host.
      Crash = Class.new(Exception) # rubocop:disable Lint/InheritException -- no rescue in the program may catch it

      # A host from its start to its crash. The host's fibers find it in their storage, which is inherited by fibers they start.
      class Boot
        KEY = :reactor_simulated_boot
        private_constant :KEY

        # @return [Boot, nil] that of the current fiber; nil outside a world, on other threads, and in fibers of the world itself
        def self.current = Patches::VirtualTime.clock && Fiber[KEY]

        # Runs the block in a fiber of this boot, or of none if boot is nil.
        def self.start(boot, &) = Fiber.schedule(storage: { **Fiber.current.storage.to_h, KEY => boot }, &)

        # @param options [Hash] of Fiber.schedule
        # @return [Boot, nil] that of the new fiber
        def self.of_new(options)
          storage = options[:storage]
          storage.is_a?(Hash) && storage.key?(KEY) ? storage[KEY] : current
        end

        attr_reader :host

        def initialize(host)
          @host = host
          @fibers = {}.compare_by_identity
          @up = true
        end

        def up? = @up

        def fibers = @fibers.keys

        def world = @host.world

        # Runs the block as a fiber of this host.
        def run
          Fiber[KEY] = self
          @fibers[Fiber.current] = true
          yield
        rescue Crash
          nil
        ensure
          @fibers.delete(Fiber.current)
          world.end_when_done if @fibers.empty?
        end

        # @param crashed [Boolean] whether it has ended if it has crashed
        # @return [Boolean] whether all its fibers have ended
        def done?(crashed) = @up ? @fibers.empty? : crashed

        # @raise [Errno::ENETDOWN] the host has crashed: its `ensure` clauses must not reach the world any more
        def check = (raise Errno::ENETDOWN, "#{@host.name} has crashed" unless @up)

        # Called when an error has ended a fiber.
        def fail(error) = world.fail(error, @up)

        # Ends the fibers where they wait. Their `ensure` clauses run.
        def stop(scheduler)
          @up = false
          scheduler.watchers.each { |watcher| watcher.cancel if watcher.instance_variable_get(:@storage)&.value?(self) }
          (fibers - [Fiber.current]).each { |fiber| scheduler.cancel_fiber(fiber, nil) }
        end
      end

      attr_reader :world, :name, :address, :boot

      # @param client [Boolean] whether the world waits for its fibers to end
      def initialize(world, name, address, client, block)
        @world = world
        @name = name
        @address = address
        @client = client
        @block = block
      end

      # Whether the world need not wait for it.
      def done?(crashed) = !@client || (!@boot.nil? && @boot.done?(crashed))

      def up? = !@boot.nil? && @boot.up?

      def start
        boot = @boot = Boot.new(self)
        Boot.start(boot) do
          @block.call
        rescue Exception => error # rubocop:disable Lint/RescueException -- also failed assertions
          boot.fail(error)
        end
      end

      def stop(scheduler) = @boot&.stop(scheduler)
    end
    private_constant :Host
  end
end

# frozen_string_literal: true

module Reactor
  module Testing
    # Prepended to the singleton class of a scheduler that runs a {World}.
    #
    # Forces yields before input and output, where an exception loses nothing, and after a sleep, but never in `block`, where a
    # wake-up could be lost. Reading a file uses no random number, because `require` reads a file only once.
    module SimulationHooks
      def fiber(*arguments, **options, &block)
        boot = Host::Boot.of_new(options) or return super
        super(*arguments, **options) { |*given| boot.run { block.call(*given) } }
      end

      def io_wait(io, *) = step(io) || super

      def io_read(io, *) = step(io) || super

      def io_write(io, *) = step(io) || super

      def kernel_sleep(duration = nil)
        boot = Host::Boot.current
        boot&.check
        super
        boot&.world&.maybe_yield if duration
      end

      private

      def wakeable_from_outside? = false

      def step(io)
        boot = Host::Boot.current
        return if boot.nil? || File === io

        boot.check
        boot.world.maybe_yield
        nil
      end
    end
    private_constant :SimulationHooks

    # Prepended to {Watcher}: runs the fibers of a host's watchers as fibers of the host.
    module WatcherOfHost
      def call(events, io)
        boot = Host::Boot.current
        boot ? boot.run { super } : super
      end
    end
    private_constant :WatcherOfHost
  end
end

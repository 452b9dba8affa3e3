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

      def io_wait(io, *) = real(io.pid) { step(io) || super }

      # After a reset, the end of the stream is an error.
      def io_read(io, *)
        read = real(io.pid) { step(io) || super }
        read.zero? && Sockets.endpoint(io)&.reset ? -Errno::ECONNRESET::Errno : read
      end

      def io_write(io, *) = real(io.pid) { step(io) || super }

      def process_wait(*) = real(true) { super }

      def kernel_sleep(duration = nil)
        boot = Host::Boot.current
        boot&.check
        super
        boot&.world&.maybe_yield if duration
      end

      # @return [Array<Thread>] threads that the program has started
      def allowed_threads = @allowed_threads ||= []

      # @return [Integer] virtual nanoseconds at which all fibers last waited
      attr_reader :idle_at

      private

      # Waits for the program's threads, which take real time.
      def wakeable_from_outside?
        Fiber.blocking { sleep 0.001 } while allowed_threads.any? { |thread| thread.alive? && !Deadlock.idle?(thread) }
        @idle_at = virtual_elapsed
        false
      end

      # Holds the clock while a fiber waits for a child process, which takes real time.
      def real(child, &) = child ? Testing.hold(&) : yield

      def step(io)
        boot = Host::Boot.current
        return if boot.nil? || File === io

        boot.check if BasicSocket === io
        boot.world.maybe_yield if boot.up?
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

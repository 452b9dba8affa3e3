# frozen_string_literal: true

module Reactor
  # Waits without a fiber.
  module Watching
    # Runs the block in a new fiber once the IO is ready, and returns at once. There is no fiber until then: an idle connection
    # takes a few hundred bytes, and the garbage collector has no stack to scan.
    #
    #   scheduler.on_ready(socket, timeout: 60) do |events|
    #     events ? serve(socket) : socket.close
    #   end
    #
    # This is a single wait: to keep watching, call `on_ready` again in the block. The fiber behaves like one made by
    # Fiber.schedule: it runs after the fibers that are ready already, it inherits the storage of the fiber that called
    # `on_ready`, and its errors are handled as described for {Lifecycle#run}. Any number of watchers and fibers may wait for the
    # same IO. Bytes that Ruby or OpenSSL has read ahead count as ready.
    #
    # While it waits, the watcher keeps the IO and the block alive, and {Lifecycle#run} keeps running. If the IO is closed or
    # reopened, the wait ends without running the block ({Watcher#ended} tells why). Watchers whose blocks need nothing but the IO
    # can share a single Proc, because the IO is passed to it.
    #
    # A TLS connection is ready when its socket is: a read may then find only part of a record, and wait.
    #
    # @param io [IO, #to_io]
    # @param events [Integer] IO::READABLE | IO::WRITABLE | IO::PRIORITY
    # @param timeout [Numeric, nil] seconds; nil: no limit, not even IO#timeout
    # @param transient [Boolean] whether {Lifecycle#run} and the end of the thread ignore this watcher
    # @yieldparam events [Integer, nil] those of the events that have occurred; nil: the timeout has elapsed
    # @yieldparam io [#to_io] the object passed as `io`
    # @return [Watcher]
    # @raise [ArgumentError] no block; no events; both directions of an IO that has two descriptors (IO.popen)
    # @raise [TypeError, RangeError] io, events or timeout has the wrong type or is out of range
    # @raise [IOError] the IO is closed, or not open in this direction
    # @raise [ThreadError] called on a thread other than the scheduler's, or in a trap handler
    # @raise [RuntimeError] the scheduler is closed, or the process is a forked child
    def on_ready(io, events = IO::READABLE, timeout: nil, transient: false, &block)
      raise ArgumentError, "no block given" unless block

      @trap_check.synchronize { nil } # raises ThreadError in a trap handler
      Watcher.new(self, events, block).begin(io, timeout, transient, Watching.read_ahead?(io, events))
    rescue TypeError, ArgumentError, RangeError
      Checks.seconds(:timeout, timeout) # if the timeout is at fault, raises an error that names it
      raise
    end

    # @return [Boolean] whether OpenSSL holds bytes that it has read from the socket
    # @api private
    def self.read_ahead?(io, events)
      return false if IO === io
      return false unless defined?(OpenSSL::Buffering) && OpenSSL::Buffering === io && Integer === events && events.anybits?(IO::READABLE)

      # No public method tells this without reading. If another version keeps the bytes elsewhere, the block's own read finds out.
      buffer = io.instance_variable_get(:@rbuffer)
      io.pending.positive? || !(String === buffer && buffer.empty?)
    end
  end
end

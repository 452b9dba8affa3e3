# frozen_string_literal: true

module Reactor
  # Waits without a fiber.
  module Watching
    # Runs the block in a new fiber as soon as the IO is ready, and returns at once. Until then there is no fiber: an idle connection
    # takes a few hundred bytes, and the garbage collector has no stack to scan.
    #
    #   scheduler.on_ready(socket, timeout: 60) do |events|
    #     events ? serve(socket) : socket.close
    #   end
    #
    # It is one wait: to go on watching, the block calls `on_ready` again. The fiber is as one of Fiber.schedule: it takes its turn
    # after the fibers that were ready before, it inherits the storage of the fiber that called `on_ready`, and an error that
    # it raises goes where {Lifecycle#run} says. Any number of watchers and fibers may wait for one IO. Bytes that
    # Ruby or OpenSSL has read ahead count as ready.
    #
    # The watcher keeps the IO and the block alive as long as it waits, and {Lifecycle#run} goes on as long as it waits. If the IO
    # is closed or reopened, the wait is over and the block does not run ({Watcher#ended} tells). Blocks that need nothing but
    # the IO may be one and the same Proc: it gets the IO.
    #
    # Readiness of a TLS connection is that of its socket: a read may find a part of a record only, and wait.
    #
    # @param io [IO, #to_io]
    # @param events [Integer] IO::READABLE | IO::WRITABLE | IO::PRIORITY
    # @param timeout [Numeric, nil] seconds; nil: no limit, IO#timeout does not count
    # @param transient [Boolean] whether {Lifecycle#run} and the end of the thread leave it out of account
    # @yieldparam events [Integer, nil] those of the events that have come; nil: the time is up
    # @yieldparam io [#to_io] what was given
    # @return [Watcher]
    # @raise [ArgumentError] without a block; no events; both directions of an IO that has two descriptors (IO.popen)
    # @raise [TypeError, RangeError] no IO, no Integer, no duration
    # @raise [IOError] the IO is closed, or not open in this direction
    # @raise [ThreadError] called by another thread than the scheduler's, or by a trap handler
    # @raise [RuntimeError] the scheduler is closed, or the process is a forked child
    def on_ready(io, events = IO::READABLE, timeout: nil, transient: false, &block)
      raise ArgumentError, "no block given" unless block

      @trap_check.synchronize { nil } # raises ThreadError in a trap handler
      Watcher.new(self, events, block).begin(io, timeout, transient, Watching.read_ahead?(io, events))
    rescue TypeError, ArgumentError, RangeError
      Options.seconds(:timeout, timeout) # names it, if it was wrong
      raise
    end

    # @return [Boolean] whether OpenSSL has bytes that it has read from the socket
    # @api private
    def self.read_ahead?(io, events)
      return false if IO === io
      return false unless defined?(OpenSSL::Buffering) && OpenSSL::Buffering === io && Integer === events && events.anybits?(IO::READABLE)
      return true if io.pending.positive?

      buffer = io.instance_variable_get(:@rbuffer) # no public method tells without reading
      buffer.is_a?(String) ? !buffer.empty? : readable_now?(io)
    end

    # For a version of OpenSSL's library that keeps its buffer elsewhere: one system call more.
    def self.readable_now?(io)
      byte = io.read_nonblock(1, exception: false)
      io.ungetc(byte) if byte.is_a?(String)
      byte != :wait_readable
    rescue SystemCallError, OpenSSL::SSL::SSLError
      true # the block will meet the error, or the end
    end
    private_class_method :readable_now?
  end
end

# frozen_string_literal: true

module Reactor
  # A wait for an IO without a fiber, returned by {Watching#on_ready}. It ends once.
  class Watcher
    # @api private
    def initialize(scheduler, events, block)
      @scheduler = scheduler
      @events = events
      @block = block
      @storage = Fiber.current.storage
      @number = @ended = nil
    end

    # @return [#to_io, nil] the watched object; nil after the wait has ended
    def io = (@scheduler.watched(@number) if waiting? && @number)

    # @return [Integer] IO::READABLE, IO::WRITABLE, IO::PRIORITY or several of them
    attr_reader :events

    # Ends the wait. The block does not run.
    #
    # @return [Boolean] false if the wait had ended already
    # @raise [ThreadError] called on a thread other than the scheduler's
    def cancel
      return false unless waiting? && @scheduler.cancel_watcher(@number)

      finish(:cancelled)
      true
    end

    # @return [Boolean] whether the block may still run
    def waiting? = ended.nil?

    # Why the wait ended:
    #
    # - `:ready`: the block has been started with the events
    # - `:timeout`: the block has been started with nil
    # - `:cancelled`: by {#cancel}, because the scheduler has ended, or because the process is a forked child
    # - `:closed`: the IO was closed
    # - `:reopened`: the IO was reopened
    # - `:failed`: there was no memory for a fiber
    #
    # @return [Symbol, nil] nil while it is waiting
    def ended = @ended || (:cancelled if @scheduler.forked_child?)

    # @raise [TypeError] always, because its state changes when it ends
    def freeze = raise(TypeError, "cannot freeze #{inspect}")

    # @raise [TypeError] always
    def initialize_copy(_other) = raise(TypeError, "cannot copy #{inspect}")

    # @return [String] what it waits for, or why it ended
    def inspect = "#<#{self.class} #{summary}>"
    alias to_s inspect

    # Starts waiting.
    #
    # @return [Watcher] self
    # @api private
    def begin(io, timeout, transient, buffered)
      @number = @scheduler.begin_watcher(self, io, @events, timeout, transient, buffered)
      self
    end

    # The body of the watcher's fiber.
    #
    # @api private
    def call(events, io)
      is_closed = io.to_io.closed?
      return finish(:closed) if is_closed && !of_server?

      @ended = if is_closed then :closed
               else events ? :ready : :timeout
               end
      @storage = nil
      @block.call(is_closed ? nil : events, io)
    ensure
      @block = nil
    end

    # @return [Array(String, Integer), nil] where the program's block is defined
    # @api private
    def source_location = FiberName.place_of(@block)

    # @return [Boolean] whether it watches a connection of a {Server}, which has to know of its end
    # @api private
    def of_server? = @scheduler.serves?(@block)

    private

    # Releases the block and the storage. The scheduler calls this, too.
    #
    # @param io [#to_io, nil] the watched object, if there was no memory for a fiber
    def finish(reason, io = nil)
      block = @block
      @ended = reason
      @block = @storage = nil
      @scheduler.recover_servers(block, io) if io
    end

    def summary
      io = self.io # before `ended`, because the wait may end while another thread asks
      return ended.name if ended
      return "about to run" unless io

      "waiting for #{FiberStatus.shown(io)} to be #{FiberStatus.wanted(@events)}"
    end
  end
end

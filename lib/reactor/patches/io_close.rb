# frozen_string_literal: true

module Reactor
  module Patches
    # Prepended to IO. Ruby 3.3 and 3.4 do not tell a scheduler that an IO is being closed, and 4.0 does not tell it of fibers
    # in IO.select: those fibers would wait forever, or for the descriptor that gets the number next. So IO#close first tells
    # the schedulers of its Ractor. They raise IOError ("stream closed in another thread") in the fibers that wait for this
    # object. That takes one look-up for each scheduler, and does not depend on fibers that wait for other objects. On Ruby 4.0 the VM
    # then interrupts the same fibers; these interrupts are dropped.
    #
    # @api private
    module IOClose
      # @return [nil]
      def close
        answer = Internal.announce_close(self) or return super
        IOClose.notify_schedulers(self) { |scheduler| scheduler.prepare_close(self) } if answer == :in_use
        IOClose.yield_to_interrupted
        super
      end

      # From Ruby 4.0 on the VM waits until the fibers that it interrupts have left the IO. If the closer is the blocking fiber of
      # their own thread, the fibers that the schedulers have interrupted could not run. So they run before the close: they are queued
      # ahead of this one.
      #
      # @api private
      def self.yield_to_interrupted = (Fiber.scheduler&.yield if RUBY_VERSION >= "4.0" && Fiber.current.blocking?)

      # @param io [IO]
      # @yield [scheduler] announces a change of the IO, and returns the scheduler's answer
      # @return [Symbol, nil] :interrupted if a fiber waits for it
      # @api private
      def self.notify_schedulers(io)
        interrupted = nil
        Schedulers.each do |scheduler|
          while (answer = yield(scheduler)) == :in_use
            # A worker uses the descriptor for a fiber of a scheduler on another thread. By a queue, because a closer that is a fiber of
            # a scheduler is parked then, and a closer that is not waits in its thread.
            queue = Thread::Queue.new
            queue.pop if scheduler.push_when_unused(io, queue)
          end
          interrupted ||= answer
        end
        interrupted
      end
    end

    # Prepended to IO and BasicSocket. IO#close_read and #close_write do not call IO#close where they close a descriptor: one end
    # of a pipe, one of the two pipes of IO.popen, a socket of which the other direction was closed before. So they tell the
    # schedulers themselves.
    #
    # @api private
    module IOHalfClose
      # @return [nil]
      def close_read = IOHalfClose.announced(self, true) { super }

      # @return [nil]
      def close_write = IOHalfClose.announced(self, false) { super }

      # @param io [IO]
      # @param reading [Boolean] whether it is the half for reading
      # @yield closes it
      # @api private
      def self.announced(io, reading)
        number = io.fileno unless io.closed?
        if number && IOClose.notify_schedulers(io) { |scheduler| scheduler.prepare_half_close(io, reading) }
          IOClose.yield_to_interrupted
        end
        yield
      ensure
        # After close_read an IO of two pipes has the descriptor of its writer.
        is_other = number && (io.closed? || io.fileno != number)
        Schedulers.each { |scheduler| scheduler.replaced(io, true) } if is_other
      end
    end

    # Prepended to BasicSocket on Windows, where a reader that waits is not told of the end of reading, and a read after it fails with
    # Errno::ESHUTDOWN. It is the end of the stream instead, as on other systems.
    #
    # @api private
    module SocketShutdown
      WRITING = [Socket::SHUT_WR, *[:WR, :SHUT_WR].flat_map { |name| [name, name.name] }].freeze
      private_constant :WRITING

      def self.needed? = VM::WINDOWS

      # @return [nil]
      def close_read = super.tap { SocketShutdown.announce(self) }

      # @return [0]
      def shutdown(how = Socket::SHUT_RDWR) = super.tap { SocketShutdown.announce(self) unless WRITING.include?(how) }

      # @return [String, nil]
      def recv(...)
        super
      rescue Errno::ESHUTDOWN
        raise unless Schedulers.current
      end

      def self.announce(socket)
        Schedulers.each { |scheduler| scheduler.note_read_shutdown(socket) } unless socket.closed?
      end
    end

    # Prepended to IO. IO#reopen gives a descriptor number another file, of which the kernel tells those that poll the number
    # nothing. So the schedulers of the Ractor are told. As in threads, a fiber that waits for an IO that is reopened with
    # another IO gets IOError ("stream closed in another thread"). A wait goes on with the new file if the IO is
    # reopened with a path. A wait in IO.select always does.
    #
    # @api private
    module IOReopen
      # @return [IO] self
      def reopen(file, *rest, **options)
        file = IO.try_convert(file) || file if rest.empty? && options.empty?
        return super if equal?(file)

        IOClose.notify_schedulers(self) { |scheduler| scheduler.prepare_reopen(self) }
        super.tap { Schedulers.each { |scheduler| scheduler.replaced(self, IO === file) } }
      end
    end
  end
end

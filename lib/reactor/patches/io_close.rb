# frozen_string_literal: true

require "socket"

module Reactor
  module Patches
    # Of IO. Ruby 3.3 and 3.4 do not tell a scheduler that an IO is being closed, and 4.0 does so only for fibers
    # outside IO.select. Without the patch the other fibers would wait forever, or wait for whichever file gets the same
    # descriptor next. So IO#close first tells the schedulers of its Ractor, which raise IOError ("stream closed in another
    # thread") in the fibers that wait for this object. That takes one lookup per scheduler, however many fibers wait for other
    # objects. On Ruby 4.0 the VM then interrupts the same fibers again; these interrupts are dropped.
    #
    # @api private
    module IOClose
      # @return [nil]
      def close
        answer = Internal.announce_close(self) or return reactor_io_close
        IOClose.notify_schedulers(self) { |scheduler| scheduler.prepare_close(self) } if answer == :in_use
        IOClose.waiting { reactor_io_close }
      end

      # From Ruby 4.0 on, the VM makes the closer wait until all fibers have left the IO. If the closer is a blocking fiber, its
      # thread's own fibers cannot leave meanwhile. So another fiber closes for it. An error that reached that fiber during the
      # close, which must not end, is raised in a wait after it.
      #
      # @yield closes the IO
      # @api private
      def self.waiting
        return yield unless Internal.close_blocks?

        Fiber.new(blocking: false, storage: nil) { yield.tap { Fiber.scheduler.yield } }.resume
      end

      # @param io [IO]
      # @yield [scheduler] announces a change of the IO, and returns the scheduler's answer
      # @return [Symbol, nil] :interrupted if a fiber was waiting for the IO
      # @api private
      def self.notify_schedulers(io)
        interrupted = nil
        Schedulers.each do |scheduler|
          while (answer = yield(scheduler)) == :in_use
            # A worker is using the descriptor for a fiber of a scheduler on another thread. A queue makes any closer wait: it
            # parks a fiber that has a scheduler, and blocks the thread of any other fiber.
            queue = Thread::Queue.new
            queue.pop if scheduler.push_when_unused(io, queue)
          end
          interrupted ||= answer
        end
        interrupted
      end
    end

    # Of IO. IO#close_read and #close_write do not call IO#close when they close a descriptor: one end
    # of a pipe, one of the two pipes of IO.popen, or a socket whose other direction is closed already. So they tell the
    # schedulers themselves.
    #
    # @api private
    module IOHalfClose
      # @return [nil]
      def close_read = IOHalfClose.announced(self, true) { reactor_io_close_read }

      # @return [nil]
      def close_write = IOHalfClose.announced(self, false) { reactor_io_close_write }

      # @param io [IO]
      # @param reading [Boolean] whether the reading half is being closed
      # @yield closes it
      # @api private
      def self.announced(io, reading)
        number = io.fileno unless io.closed?
        IOClose.notify_schedulers(io) { |scheduler| scheduler.prepare_half_close(io, reading) } if number
        IOClose.waiting { yield }
      ensure
        # After close_read, an IO of two pipes has its writer's descriptor.
        is_other = number && (io.closed? || io.fileno != number)
        Schedulers.each { |scheduler| scheduler.replaced(io, true) } if is_other
      end
    end

    # Of BasicSocket; see {IOHalfClose}.
    #
    # @api private
    module SocketHalfClose
      # @return [nil]
      def close_read
        IOHalfClose.announced(self, true) { reactor_basicsocket_close_read }
        SocketShutdown.announce(self) if VM::WINDOWS
      end

      # @return [nil]
      def close_write = IOHalfClose.announced(self, false) { reactor_basicsocket_close_write }
    end

    # Of BasicSocket on Windows, where a waiting reader is not told about a shutdown of reading, and later reads fail with
    # Errno::ESHUTDOWN. With the patch, the waiting reader and later reads see the end of the stream, as on other systems.
    #
    # @api private
    module SocketShutdown
      WRITING = [Socket::SHUT_WR, *[:WR, :SHUT_WR].flat_map { |name| [name, name.name] }].freeze
      private_constant :WRITING

      def self.needed? = VM::WINDOWS

      # @return [0]
      def shutdown(how = Socket::SHUT_RDWR)
        reactor_basicsocket_shutdown(how).tap { SocketShutdown.announce(self) unless WRITING.include?(how) }
      end

      # @return [String, nil]
      def recv(...)
        reactor_basicsocket_recv(...)
      rescue Errno::ESHUTDOWN
        raise unless Schedulers.current
      end

      # @return [nil]
      def self.announce(socket)
        Schedulers.each { |scheduler| scheduler.note_read_shutdown(socket) } unless socket.closed?
        nil
      end
    end

    # Of IO. IO#reopen gives the same descriptor another file, and the kernel does not tell the pollers of the
    # descriptor. So the patch tells the schedulers of the Ractor. As in threads, a fiber that waits for the IO gets IOError
    # ("stream closed in another thread") if it is reopened with another IO, and waits for the new file if it is reopened with a
    # path. A wait in IO.select continues in both cases.
    #
    # @api private
    module IOReopen
      # @return [IO] self
      def reopen(file, *rest, **options)
        file = IO.try_convert(file) || file if rest.empty? && options.empty?
        return reactor_io_reopen(file, *rest, **options) if equal?(file)

        IOClose.notify_schedulers(self) { |scheduler| scheduler.prepare_reopen(self) }
        reopened = FileOpen.by_path(file) { |path| IOClose.waiting { reactor_io_reopen(path, *rest, **options) } }
        reopened.tap { Schedulers.each { |scheduler| scheduler.replaced(self, IO === file) } }
      end
    end
  end
end

# frozen_string_literal: true

require "fcntl"

module Reactor
  # Ruby asks no scheduler before opening a FIFO, fsync(2), flock(2), pwrite(2) (before 4.0), the reading side of
  # IO.copy_stream, and closing a file: each of them would hold up all fibers. So from the first {Scheduler} on, these methods do, in its
  # fibers, what keeps the loop going, and elsewhere what they always did. A program that makes no scheduler keeps its
  # files as they are.
  module Files
    # Bytes of a file that are sent by one call of IO.copy_stream (about 0.3 ms), and that are asked of the disk meanwhile.
    STRETCH = 256 << 10
    AHEAD = 16 << 20

    # Seconds between two attempts at a lock, at first and at most: as often as Ruby itself asks again at last.
    HASTE = 0.001
    PATIENCE = 0.1

    # Bytes of a file whose close may take its time.
    MUCH = 1 << 20

    # Bytes that are written on the spot if that has been cheap so far.
    SMALL = 16 << 10

    private_constant :STRETCH, :AHEAD, :MUCH, :SMALL, :HASTE, :PATIENCE

    # File.new and File.open. Opening a FIFO waits for somebody who opens its other end: done by a thread of its own.
    # (Ruby 3.3 offers its open(2) to nobody, and where 3.4 offers it nothing tells a FIFO from other files.) Whether it
    # is one costs a stat(2) in the fibers of a scheduler: 1.5 us.
    #
    # @raise as without a scheduler
    def initialize(path = (nothing = true), ...)
      return super() if nothing

      scheduler = Files.scheduler
      return super unless scheduler && Files.fifo?(path)

      scheduler.wait_out { super }
    end

    # Done by the driver if it can (`uring`); else by a worker thread, unless it has proved cheap.
    #
    # @return [0]
    # @raise [SystemCallError, IOError] as without a scheduler
    def fsync = Files.sync(self, :fsync) { super() }

    # As {#fsync}.
    #
    # @return [0]
    # @raise [SystemCallError, IOError] as without a scheduler
    def fdatasync = Files.sync(self, :fdatasync) { super() }

    if RUBY_VERSION < "4.0" # which has a hook for it
      # As {#fsync}, but never by the driver; what is large is a worker's affair in any case, for the kernel makes whoever
      # writes wait when it has much to write.
      #
      # @return [Integer] bytes
      # @raise [SystemCallError, IOError, TypeError] as without a scheduler
      def pwrite(string, offset)
        return Files.weigh(:pwrite) { super } unless string.is_a?(String) && string.bytesize > SMALL

        scheduler = Files.scheduler
        scheduler ? scheduler.offload { super } : super
      end
    end

    # Done by a worker thread for a file of more than a mebibyte that was open for writing: a file system may give it its
    # places on the disk only now (ext4 does, if it was truncated before), which took 20 ms for 50 MiB.
    #
    # @return [nil]
    # @raise [SystemCallError] as without a scheduler
    def close
      scheduler = Files.scheduler unless closed?
      return super unless scheduler && Files.much_written?(self)

      begin
        scheduler.offload { super() }
      ensure
        super() unless closed? # interrupted before a worker had begun
      end
    end

    # Without LOCK_NB, asks for the lock again and again, at growing intervals of up to 0.1 s, the fiber being parked:
    # a worker that waits for a lock might wait for ever, and who is interrupted must not get it.
    #
    # @param operation [Integer] as without a scheduler
    # @return [0, false]
    # @raise [SystemCallError, IOError, TypeError] as without a scheduler
    def flock(operation)
      return super unless operation.is_a?(Integer) && operation.nobits?(File::LOCK_NB | File::LOCK_UN) && Files.scheduler

      pause = HASTE
      until super(operation | File::LOCK_NB)
        sleep(pause)
        pause = [pause * 2, PATIENCE].min
      end
      0
    end

    # IO.copy_stream from a regular file: a stretch at a time, each brought into the page cache by the pool before it is
    # sent. From one file to another: by a worker thread, as a whole. Between others, as ever.
    module Copying
      # @return [Integer] bytes
      # @raise as without a scheduler
      def copy_stream(source, target, length = nil, offset = nil)
        scheduler = Files.scheduler
        return super unless scheduler
        if Files.path?(source)
          return File.open(source, "rb") { |file| copy_stream(file, target, length, offset) }
        end
        return super unless Files.regular?(source)
        return scheduler.offload { super } if Files.path?(target) || Files.regular?(target)
        return super unless scheduler.respond_to?(:fetch) && target.is_a?(IO)
        return super unless [length, offset].all? { |number| number.nil? || (number.is_a?(Integer) && number.bit_length < 63) }

        length = nil if length&.negative? # all of it, from where it is: as without a scheduler
        offset = nil if offset&.negative?
        Files.send_in_stretches(length) do |done, stretch|
          wanted = length ? [length - done, AHEAD].min : AHEAD
          scheduler.fetch(source, offset ? offset + done : source.pos, stretch, wanted)
          super(source, target, stretch, offset && (offset + done))
        end
      end
    end

    class << self
      # @api private
      def install
        File.prepend(self)
        IO.singleton_class.prepend(Copying)
      end

      # The scheduler of ours whose fiber this is.
      #
      # @api private
      def scheduler
        scheduler = Fiber.current_scheduler
        scheduler if scheduler.is_a?(Lifecycle)
      end

      # Whether this file was open for writing, and is large.
      #
      # @api private
      def much_written?(file)
        file.fcntl(Fcntl::F_GETFL).anybits?(IO::WRONLY | IO::RDWR) && file.stat.size > MUCH
      rescue SystemCallError, NotImplementedError
        false
      end

      # @api private
      def weigh(place, &work) = (scheduler = self.scheduler) ? scheduler.weigh(place, work) : yield

      # @api private
      def sync(file, name, &work)
        scheduler = self.scheduler
        return yield unless scheduler

        file.flush
        number = scheduler.sync(file, name == :fdatasync) if scheduler.respond_to?(:sync)
        return scheduler.weigh(name, work) unless number
        return 0 if number.zero?

        raise SystemCallError.new(file.path, number, "rb_io_fsync")
      end

      # @api private
      def fifo?(path)
        return Reactor.fifo?(path) if path.is_a?(String)

        path.respond_to?(:to_path) && !path.is_a?(IO) && Reactor.fifo?(path.to_path)
      end

      # What IO.copy_stream opens itself.
      #
      # @api private
      def path?(object) = object.is_a?(String) || (object.respond_to?(:to_path) && !IO.try_convert(object))

      # Yields how much is done and how much is to be done next, until that is no longer possible.
      #
      # @api private
      def send_in_stretches(length)
        done = 0
        until length && done >= length
          stretch = length ? [length - done, STRETCH].min : STRETCH
          copied = yield(done, stretch)
          done += copied
          break if copied < stretch
        end
        done
      end

      # @api private
      def regular?(object) = object.is_a?(File) && !object.closed? && object.stat.file?
    end
  end
end

# frozen_string_literal: true

require "fcntl"

module Reactor
  module Patches
    # Prepended to IO's singleton class. IO.copy_stream from a regular file to an IO goes chunk by chunk: the pool brings each chunk
    # into the page cache before it is sent. From one regular file to another a worker copies; an interrupted fiber leaves when its
    # copy_file_range(2) has returned. Where Ruby's own reads and writes would block the thread (a terminal, an inherited pipe:
    # descriptors without O_NONBLOCK), a thread of its own copies. Else Ruby's own waits call the hooks. On Windows, where nothing would end
    # the wait of that thread for a socket, Ruby copies by the methods of the objects, in the fiber.
    #
    # @api private
    module CopyStream
      # Bytes of a file that one call of Ruby's IO.copy_stream sends (about 0.3 ms).
      COPY_CHUNK = 256 << 10
      # Bytes that are asked of the disk meanwhile.
      READAHEAD = 16 << 20
      # No IOs for Ruby, so it calls these methods.
      Source = Struct.new(:io) { def readpartial(...) = io.readpartial(...) }
      Target = Struct.new(:io) { def write(...) = io.write(...) }
      private_constant :COPY_CHUNK, :READAHEAD, :Source, :Target

      # @return [Integer] bytes
      # @raise as without a scheduler
      def copy_stream(source, target, length = nil, offset = nil)
        scheduler = Schedulers.current
        return super unless scheduler
        if CopyStream.path?(source)
          return File.open(source, "rb") { |file| copy_stream(file, target, length, offset) }
        end

        reads, writes = CopyStream.blocks?(source), CopyStream.blocks?(target)
        if VM::WINDOWS && (writes || (reads && !offset))
          source.read(0) if reads # raises if it cannot be read: nothing is truncated then
          copied = super(reads ? Source.new(source.binmode) : source, writes ? Target.new(target) : target, length, offset)
          target.flush if writes
          return copied
        end
        return scheduler.run_on_own_thread { super } if reads || writes
        return super unless CopyStream.regular?(source)

        if CopyStream.path?(target)
          source.read(0) # raises if it cannot be read: nothing is truncated then
          return File.open(target, "wb") { |file| copy_stream(source, file, length, offset) }
        end

        return scheduler.offload { super } if CopyStream.regular?(target)
        return super unless scheduler.respond_to?(:prefetch) && IO === target
        return super unless [length, offset].all? { |number| number.nil? || (Integer === number && number.bit_length < 63) }

        length = nil if length&.negative? # the whole file, from where it is: as without a scheduler
        offset = nil if offset&.negative?
        done = 0
        loop do # at least once, because Ruby checks and flushes even if there is nothing to copy
          left = length ? length - done : READAHEAD
          chunk = [left, COPY_CHUNK].min
          # At its descriptor's offset: source.pos would discard bytes that were pushed back.
          from = offset && (offset + done)
          scheduler.prefetch(source, from, chunk, [left, READAHEAD].min)
          copied = super(source, target, chunk, from)
          done += copied
          return done if copied < chunk || done == length
        end
      end

      class << self
        # Whether IO.copy_stream opens this object itself.
        def path?(object) = String === object || (object.respond_to?(:to_path) && !IO.try_convert(object))

        def regular?(object) = File === object && !object.closed? && File.file?(object)

        # Whether a read or a write of this object may block the thread. On Windows it always may.
        def blocks?(object)
          return false unless IO === object && !object.closed? && (VM::WINDOWS || object.fcntl(Fcntl::F_GETFL).nobits?(File::NONBLOCK))

          # (IO#stat ends the process if the descriptor is closed on Windows.)
          File.pipe?(object) || File.socket?(object) || (File.chardev?(object) && object.tty?)
        rescue IOError, SystemCallError, NotImplementedError, FrozenError
          false # the copy will meet the error
        end
      end
    end
  end
end

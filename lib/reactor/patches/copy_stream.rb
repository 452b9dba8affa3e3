# frozen_string_literal: true

require "fcntl"

module Reactor
  module Patches
    # Prepended to IO's singleton class. IO.copy_stream from a regular file to an IO proceeds in chunks: the pool reads each chunk
    # into the page cache before it is sent. A copy from one regular file to another runs on a worker; an interrupted fiber waits
    # until its current copy_file_range(2) has returned. Where Ruby's own reads and writes would block the thread (descriptors
    # without O_NONBLOCK, such as a terminal or an inherited pipe), the copy runs on a thread of its own. On Windows nothing could
    # end that thread's wait for a socket, so there Ruby copies in the fiber, by calling the methods of the objects. In all other
    # cases Ruby's own waits call the hooks.
    #
    # @api private
    module CopyStream
      # Bytes of a file to send per call of Ruby's IO.copy_stream (about 0.3 ms).
      COPY_CHUNK = 256 << 10
      # Bytes to request from the disk meanwhile.
      READAHEAD = 16 << 20
      # Wrappers that are not IOs, so Ruby copies by calling these methods.
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
          source.read(0) if reads # raises if the source is not readable, before anything is truncated
          copied = super(reads ? Source.new(source.binmode) : source, writes ? Target.new(target) : target, length, offset)
          target.flush if writes
          return copied
        end
        return scheduler.run_on_own_thread { super } if reads || writes
        return super unless CopyStream.regular?(source)

        if CopyStream.path?(target)
          source.read(0) # raises if the source is not readable, before anything is truncated
          return File.open(target, "wb") { |file| copy_stream(source, file, length, offset) }
        end

        return scheduler.offload { super } if CopyStream.regular?(target)
        return super unless IO === target
        return super unless [length, offset].all? { |number| number.nil? || (Integer === number && number.bit_length < 63) }

        length = nil if length&.negative? # the whole file from its position on, as without a scheduler
        offset = nil if offset&.negative?
        done = 0
        loop do # at least once, because Ruby checks and flushes even if there is nothing to copy
          left = length ? length - done : READAHEAD
          chunk = [left, COPY_CHUNK].min
          # Reads at the descriptor's offset, because source.pos would discard bytes that were pushed back.
          from = offset && (offset + done)
          scheduler.prefetch(source, from, chunk, [left, READAHEAD].min)
          copied = super(source, target, chunk, from)
          done += copied
          return done if copied < chunk || done == length
        end
      end

      class << self
        # Whether IO.copy_stream opens this object as a file.
        def path?(object) = String === object || (object.respond_to?(:to_path) && !IO.try_convert(object))

        def regular?(object) = File === object && !object.closed? && File.file?(object)

        # Whether a read or a write of this object may block the thread. On Windows it always may.
        def blocks?(object)
          return false unless IO === object && !object.closed? && (VM::WINDOWS || object.fcntl(Fcntl::F_GETFL).nobits?(File::NONBLOCK))

          # (On Windows, IO#stat would crash the process if the descriptor is closed.)
          File.pipe?(object) || File.socket?(object) || (File.chardev?(object) && object.tty?)
        rescue IOError, SystemCallError, NotImplementedError, FrozenError
          false # the copy will raise the error
        end
      end
    end
  end
end

# frozen_string_literal: true

require "fcntl"

module Reactor
  module Patches
    # Prepended to IO's singleton class. IO.copy_stream from a regular file to an IO goes chunk by chunk: the pool brings each
    # chunk into the page cache before it is sent. From one regular file to another a worker copies, in pieces: copy_file_range(2)
    # may go on for seconds, and no signal ends it. Where Ruby's own reads and writes would block the thread (a terminal, an
    # inherited pipe: descriptors without O_NONBLOCK), a thread of its own copies. Else Ruby's own waits call the hooks.
    #
    # @api private
    module CopyStream
      # Bytes of a file that one call of Ruby's IO.copy_stream sends (about 0.3 ms).
      COPY_CHUNK = 256 << 10
      # Bytes that a worker copies before it can be interrupted.
      COPY_PIECE = 8 << 20
      # Bytes that are asked of the disk meanwhile.
      READAHEAD = 16 << 20
      private_constant :COPY_CHUNK, :COPY_PIECE, :READAHEAD

      # @return [Integer] bytes; 0 from beyond the end of a file other than the target, where plain Ruby may raise Errno::EOVERFLOW
      # @raise as without a scheduler
      def copy_stream(source, target, length = nil, offset = nil)
        scheduler = Schedulers.current
        return super unless scheduler
        if CopyStream.path?(source)
          return File.open(source, "rb") { |file| copy_stream(file, target, length, offset) }
        end
        return scheduler.run_on_own_thread { super } if CopyStream.blocks?(source) || CopyStream.blocks?(target)
        return super unless CopyStream.regular?(source)

        if CopyStream.path?(target)
          source.read(0) # raises if it cannot be read: nothing is truncated then
          return File.open(target, "wb") { |file| copy_stream(source, file, length, offset) }
        end

        to_file = CopyStream.regular?(target)
        return super unless to_file || (scheduler.respond_to?(:prefetch) && IO === target)
        unless [length, offset].all? { |number| number.nil? || (Integer === number && number.bit_length < 63) }
          return to_file ? scheduler.offload { super } : super
        end

        length = nil if length&.negative? # the whole file, from where it is: as without a scheduler
        offset = nil if offset&.negative?
        if to_file
          # Onto its own end in one piece, which ends where the file ends now: pieces would follow what they write.
          return scheduler.offload { super } if length.nil? && File.identical?(source, target)

          return scheduler.offload do
            CopyStream.in_chunks(length, COPY_PIECE) { |done, piece| super(source, target, piece, offset && (offset + done)) }
          end
        end

        CopyStream.in_chunks(length, COPY_CHUNK) do |done, chunk|
          # At its descriptor's offset: source.pos would discard bytes that were pushed back.
          wanted = length ? [length - done, READAHEAD].min : READAHEAD
          scheduler.prefetch(source, offset && (offset + done), chunk, wanted)
          super(source, target, chunk, offset && (offset + done))
        end
      end

      class << self
        # Whether IO.copy_stream opens this object itself.
        def path?(object) = String === object || (object.respond_to?(:to_path) && !IO.try_convert(object))

        def regular?(object) = File === object && !object.closed? && object.stat.file?

        # Whether a read or a write of this object may block the thread.
        def blocks?(object)
          return false unless IO === object && !object.closed? && object.fcntl(Fcntl::F_GETFL).nobits?(File::NONBLOCK)

          stat = object.stat
          stat.pipe? || stat.socket? || (stat.chardev? && object.tty?)
        rescue IOError, SystemCallError, NotImplementedError, FrozenError
          false # the copy will meet the error
        end

        # Yields the bytes done and the bytes to do next, until the length is reached or a chunk comes back short: at least once,
        # because Ruby checks and flushes even if there is nothing to copy.
        def in_chunks(length, most)
          done = 0
          loop do
            chunk = length ? [length - done, most].min : most
            copied = yield(done, chunk)
            done += copied
            return done if copied < chunk || done == length
          end
        end
      end
    end
  end
end

# frozen_string_literal: true

require "fcntl"

module Reactor
  module Patches
    # Of IO's singleton class. IO.copy_stream from a regular file to an IO proceeds in chunks: the pool reads each chunk
    # into the page cache before it is sent. A copy from one regular file to another runs on a worker; an interrupted fiber waits
    # until its current copy_file_range(2) has returned. Where Ruby's own reads and writes would block the thread (descriptors
    # without O_NONBLOCK, such as a terminal or an inherited pipe), or never wait (a device), the copy runs on a thread of its own. On
    # Windows nothing could end that thread's wait for a socket, so there Ruby copies in the fiber, by calling the methods of the
    # objects. In all other cases Ruby's own waits call the hooks.
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
        scheduler = Schedulers.current if [length, offset].all? { |number| number.nil? || (Integer === number && number.bit_length < 63) }
        return reactor_io_copy_stream(source, target, length, offset) unless scheduler

        CopyStream.opened(CopyStream.converted(source), "rb") do |input|
          target = CopyStream.converted(target)
          reads, writes = CopyStream.blocks?(input), CopyStream.blocks?(target)
          if VM::WINDOWS && (writes || (reads && !offset))
            input.read(0) if reads # raises if the source is not readable, before anything is truncated
            wrapped = [reads ? Source.new(input.binmode) : input, writes ? Target.new(target) : target]
            copied = reactor_io_copy_stream(*wrapped, length, offset)
            target.flush if writes
            return copied
          end
          regular = CopyStream.regular?(input)
          if reads || writes || (!regular && CopyStream.device?(input))
            return scheduler.run_on_own_thread { reactor_io_copy_stream(input, target, length, offset) }
          end
          return reactor_io_copy_stream(input, target, length, offset) unless regular

          input.read(0) if String === target # as above
          CopyStream.opened(target, "wb") do |output|
            return scheduler.offload { reactor_io_copy_stream(input, output, length, offset) } if CopyStream.regular?(output)
            return reactor_io_copy_stream(input, output, length, offset) unless IO === output

            length = nil if length&.negative? # the whole file from its position on, as without a scheduler
            offset = nil if offset&.negative?
            done = 0
            while true # at least once, because Ruby checks and flushes even if there is nothing to copy
              left = length ? length - done : READAHEAD
              chunk = [left, COPY_CHUNK].min
              # Reads at the descriptor's offset, because input.pos would discard bytes that were pushed back.
              from = offset && (offset + done)
              scheduler.prefetch(input, from, chunk, [left, READAHEAD].min)
              copied = reactor_io_copy_stream(input, output, chunk, from)
              done += copied
              return done if copied < chunk || done == length
            end
          end
        end
      end

      class << self
        # As Ruby converts it. The object may not be asked twice.
        #
        # @return [IO, String, Object] an IO; a path; the object itself if it is neither
        def converted(object)
          return object if IO === object || !(String === object || object.respond_to?(:to_path))

          IO.try_convert(object) || File.path(object)
        end

        # @yieldparam io [IO, Object] the file if the object is a path, otherwise the object
        def opened(object, mode, &) = String === object ? File.open(object, mode, &) : yield(object)

        def regular?(object) = File === object && !object.closed? && File.file?(object)

        # Whether the kernel cannot wait for this object, which is no regular file: /dev/urandom, a disk.
        def device?(object)
          return false if VM::WINDOWS || !(IO === object) || object.closed?

          stat = object.stat
          stat.blockdev? || (stat.chardev? && !object.tty?)
        rescue SystemCallError
          false # the copy will raise the error
        end

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

# frozen_string_literal: true

require "fcntl"

module Reactor
  module Patches
    # Prepended to File: File.new and File.open. Opening a FIFO waits until its other end is opened, so a thread of its own
    # does it. Ruby 3.3 does not offer open(2) to a scheduler, and 3.4 does not say that a file is a FIFO. To find out costs
    # a stat(2).
    #
    # @api private
    module FileOpen
      # @raise as without a scheduler
      # @raise [ThreadError] it is a FIFO, and no thread can be started
      def initialize(path = (nothing = true), ...)
        return super() if nothing

        scheduler = Schedulers.current
        return super unless scheduler

        scheduler.yield_if_slice_spent
        return super unless FileOpen.fifo?(path)

        scheduler.run_on_own_thread { super }
      end

      def self.fifo?(path)
        return Internal.fifo?(path) if String === path

        !(IO === path) && path.respond_to?(:to_path) && Internal.fifo?(path.to_path)
      end
    end

    # Prepended to File. The driver does it if it can (backend uring); else a worker, unless it has been cheap so far.
    #
    # @api private
    module FileSync
      # @return [0]
      # @raise [SystemCallError, IOError] as without a scheduler
      def fsync = FileSync.sync(self, :fsync) { super() }

      # As {#fsync}.
      #
      # @return [0]
      # @raise [SystemCallError, IOError] as without a scheduler
      def fdatasync = FileSync.sync(self, :fdatasync) { super() }

      def self.sync(file, name, &work)
        scheduler = Schedulers.current
        return yield unless scheduler

        number = scheduler.sync_by_driver(file, name == :fdatasync) if scheduler.respond_to?(:sync_by_driver)
        return scheduler.run_by_cost(name, work) unless number
        return 0 if number.zero?

        raise SystemCallError.new(file.path, number, "rb_io_fsync")
      end
    end

    # Prepended to File before Ruby 4.0, which has a hook for it. A worker does it if it has been expensive so far, or if the
    # string is large, because the kernel makes a writer wait once it has much to write.
    #
    # @api private
    module FilePwrite
      # Bytes that are written inline if that has been cheap so far.
      INLINE_WRITE_MAX = 16 << 10
      private_constant :INLINE_WRITE_MAX

      # @param string [#to_s]
      # @param offset [Integer] bytes from the beginning of the file
      # @return [Integer] bytes written
      # @raise [SystemCallError, IOError, TypeError] as without a scheduler
      def pwrite(string, offset)
        scheduler = Schedulers.current
        return super unless scheduler
        return scheduler.run_by_cost(:pwrite, -> { super }) unless String === string && string.bytesize > INLINE_WRITE_MAX

        scheduler.offload { super }
      end
    end

    # Prepended to File. A worker closes a file of more than a mebibyte that was open for writing, because a file system may
    # allocate its blocks only then: ext4 does if the file was truncated before, which took 20 ms for 50 MiB.
    #
    # @api private
    module FileClose
      # Bytes of a file from which on a close may be slow.
      LARGE_FILE = 1 << 20
      private_constant :LARGE_FILE

      # @return [nil]
      # @raise [SystemCallError] as without a scheduler
      def close
        scheduler = Schedulers.current unless closed?
        return super unless scheduler
        return super.tap { scheduler.yield_if_slice_spent } unless FileClose.slow?(self)

        begin
          scheduler.offload { super() }
        ensure
          super() unless closed? # interrupted before a worker had begun
        end
      end

      # Whether this file was open for writing and is large. Windows does not tell how a file was opened.
      def self.slow?(file)
        !VM::WINDOWS && file.fcntl(Fcntl::F_GETFL).anybits?(IO::WRONLY | IO::RDWR) && file.stat.size > LARGE_FILE
      rescue SystemCallError, NotImplementedError, FrozenError
        false
      end
    end

    # Prepended to File. A thread of its own waits for a lock that is not free, perhaps for ever. If the fiber is interrupted, the
    # thread is interrupted as well, by a signal, and a lock that it got meanwhile is released: a fiber that leaves by an
    # exception never has the lock.
    #
    # Where no fiber may wait for a thread, which is in other Ractors than the main one on Ruby 3.3, and on 3.4 without the native
    # library, the lock is tried again after pauses. So it is on Windows, where nothing interrupts a thread that waits for one.
    #
    # @api private
    module FileLock
      # Seconds between two attempts.
      LOCK_RETRY = 0.01
      private_constant :LOCK_RETRY

      # @param operation [Integer] File::LOCK_EX, LOCK_SH or LOCK_UN, with LOCK_NB or without
      # @return [0, false]
      # @raise [SystemCallError, IOError, TypeError] as without a scheduler
      # @raise [ThreadError] the lock is not free, and no thread can be started
      def flock(operation)
        scheduler = Schedulers.current if Integer === operation && operation.nobits?(File::LOCK_NB | File::LOCK_UN)
        return super unless scheduler
        return 0 if super(operation | File::LOCK_NB)

        if VM::WINDOWS || !scheduler.may_wait_for_threads?
          sleep LOCK_RETRY until super(operation | File::LOCK_NB)
          return 0
        end
        begin
          granted = scheduler.run_on_own_thread { super(operation) }
        ensure
          super(File::LOCK_UN) unless granted || closed?
        end
      end
    end
  end
end

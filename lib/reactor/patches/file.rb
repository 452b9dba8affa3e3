# frozen_string_literal: true

require "fcntl"

module Reactor
  module Patches
    # Of File: File.new and File.open. Opening a FIFO waits until its other end is opened, and opening a device may wait as well, so
    # that runs on a thread of its own. Ruby 3.3 does not offer open(2) to a scheduler, and later versions do not say what is
    # opened, so how long earlier ones took is no guide. Finding out costs a stat(2).
    #
    # @api private
    module FileOpen
      # @raise as without a scheduler
      # @raise [ThreadError] opening may wait and no thread can be started
      def initialize(path = (nothing = true), ...)
        return reactor_file_initialize if nothing

        scheduler = Schedulers.current
        return reactor_file_initialize(path, ...) unless scheduler

        path = FileOpen.converted(path, ...) unless String === path
        FileOpen.parked(scheduler, path) { reactor_file_initialize(path, ...) }
      end

      # As Ruby converts it. The object may not be asked twice.
      #
      # @param further [Array] the other arguments
      # @return [Integer, String, Object] a descriptor or a path; the object itself if Ruby would raise an error before it asks
      # @raise [TypeError, ArgumentError] as without a scheduler
      def self.converted(path, *further, **, &)
        return path if further.size > 2

        (Integer.try_convert(path) if further.size < 2) || File.path(path)
      end

      # @param path [String, Integer, Object] what the block opens
      # @return what the block returns; it runs on a thread of its own if opening the path may wait
      def self.parked(scheduler, path)
        scheduler.yield_if_slice_spent
        return yield unless String === path && Internal.opening_waits?(path)

        scheduler.run_on_own_thread { yield } # rubocop:disable Style/ExplicitBlockArgument -- allocates nothing
      end

      # @param path [String, #to_path, IO]
      # @yield [path] opens the path, which is converted, or uses the IO
      # @return what the block returns
      def self.by_path(path)
        scheduler = Schedulers.current if String === path || path.respond_to?(:to_path) || path.respond_to?(:to_str)
        return yield(path) if scheduler.nil? || IO === path

        path = File.path(path) unless String === path
        parked(scheduler, path) { yield path }
      end
    end

    # Of IO's singleton class: the methods that open a file without File.new. They run as a whole where {FileOpen} would open the
    # file. IO.foreach is not among them, because it would set `$_` here instead of in its caller.
    #
    # @api private
    module PathMethods
      %w[read binread readlines write binwrite sysopen].each do |name|
        class_eval(<<~RUBY, __FILE__, __LINE__ + 1)
          def #{name}(path = (nothing = true), ...)
            nothing ? reactor_io_#{name} : FileOpen.by_path(path) { |converted| reactor_io_#{name}(converted, ...) }
          end
        RUBY
      end
    end

    # Of IO. The driver syncs if it can (backend uring); otherwise the fiber does if syncs have been cheap so far, or
    # else a worker. A method in Ruby, which had replaced Ruby's own, is called.
    #
    # @api private
    module Sync
      # @return [0]
      # @raise [SystemCallError, IOError] as without a scheduler
      def fsync = Sync.run(self, :fsync) { reactor_io_fsync }

      # As {#fsync}.
      #
      # @return [0]
      # @raise [SystemCallError, IOError] as without a scheduler
      def fdatasync = Sync.run(self, :fdatasync) { reactor_io_fdatasync }

      def self.run(io, name, &work)
        scheduler = Schedulers.current
        return yield unless scheduler

        is_replaced = IO.instance_method(:"reactor_io_#{name}").source_location
        number = scheduler.sync_by_driver(io, name == :fdatasync) unless is_replaced
        return scheduler.run_by_cost(name, work) unless number
        return 0 if number.zero?

        raise SystemCallError.new(io.path, number, "rb_io_fsync")
      end
    end

    # Of File before Ruby 4.0: later versions have a hook for pwrite. The write runs on a worker if writes have been
    # expensive so far, or if the string is large, because the kernel makes writers wait when it has much to write.
    #
    # @api private
    module FilePwrite
      # The most bytes to write inline if writes have been cheap so far.
      INLINE_WRITE_MAX = 16 << 10
      private_constant :INLINE_WRITE_MAX

      # @param string [#to_s]
      # @param offset [Integer] position in the file, in bytes
      # @return [Integer] bytes written
      # @raise [SystemCallError, IOError, TypeError] as without a scheduler
      def pwrite(string, offset)
        scheduler = Schedulers.current
        return reactor_file_pwrite(string, offset) unless scheduler

        write = proc { reactor_file_pwrite(string, offset) }
        return scheduler.run_by_cost(:pwrite, write) unless String === string && string.bytesize > INLINE_WRITE_MAX

        scheduler.offload(&write)
      end
    end

    # Of File. A file of more than 1 MiB that was open for writing is closed on a worker, because some file systems
    # allocate blocks only at the close: if the file had been truncated before, closing 50 MiB took ext4 20 ms.
    #
    # @api private
    module FileClose
      # Size in bytes above which closing a file may be slow.
      LARGE_FILE = 1 << 20
      private_constant :LARGE_FILE

      # @return [nil]
      # @raise [SystemCallError] as without a scheduler
      def close
        scheduler = Schedulers.current unless closed?
        return reactor_file_close unless scheduler
        return reactor_file_close.tap { scheduler.yield_if_slice_spent } unless FileClose.slow?(self)

        begin
          scheduler.offload { reactor_file_close }
        ensure
          reactor_file_close unless closed? # if the fiber was interrupted before a worker started the close
        end
      end

      # Whether this file was open for writing and is large. Windows cannot tell how a file was opened.
      def self.slow?(file)
        !VM::WINDOWS && file.fcntl(Fcntl::F_GETFL).anybits?(IO::WRONLY | IO::RDWR) && file.stat.size > LARGE_FILE
      rescue SystemCallError, NotImplementedError, FrozenError
        false
      end
    end

    # Of File. A wait for a lock that is not free runs on a thread of its own, because it may last forever. When the
    # fiber is interrupted, the thread is interrupted too, by a signal, and a lock it has obtained meanwhile is released: a fiber
    # that leaves by an exception never holds the lock.
    #
    # Where no fiber may wait for a thread, the lock is polled instead. That is the case outside the main Ractor on Ruby 3.3, and on
    # Windows, where nothing can interrupt a thread that waits for a lock.
    #
    # @api private
    module FileLock
      # Seconds between two attempts.
      LOCK_RETRY = 0.01
      private_constant :LOCK_RETRY

      # @param operation [Integer] File::LOCK_EX, LOCK_SH or LOCK_UN, with LOCK_NB or without
      # @return [0, false]
      # @raise [SystemCallError, IOError, TypeError] as without a scheduler
      # @raise [ThreadError] the lock is not free and no thread can be started
      def flock(operation)
        scheduler = Schedulers.current if Integer === operation && operation.nobits?(File::LOCK_NB | File::LOCK_UN)
        return reactor_file_flock(operation) unless scheduler
        return 0 if reactor_file_flock(operation | File::LOCK_NB)

        if VM::WINDOWS || !scheduler.may_wait_for_threads?
          sleep LOCK_RETRY until reactor_file_flock(operation | File::LOCK_NB)
          return 0
        end
        begin
          granted = scheduler.run_on_own_thread { reactor_file_flock(operation) }
        ensure
          reactor_file_flock(File::LOCK_UN) unless granted || closed?
        end
      end
    end
  end
end

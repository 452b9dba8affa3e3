# frozen_string_literal: true

begin
  require "io/nonblock"
rescue LoadError
  nil # without it every descriptor counts as one that blocks, and is polled before it is used
end

module Reactor
  class PortableScheduler
    # The work of io_read and io_write, for the order and meaning of arguments of every Ruby: attempts that do not wait.

    include TransferLoop

    # Bytes written in one attempt to a descriptor that blocks. A pipe that is writable takes this much without blocking
    # (PIPE_BUF).
    PIPE_CHUNK = 4096

    # Bytes written in one attempt to a terminal that blocks. If it is nearly full it may block all the same. (The native
    # scheduler opens it a second time, without blocking.)
    DEVICE_CHUNK = 32

    # Seconds for which a fiber may go on with transfers and other operations that need not wait, counted from the end of the last poll.
    TIME_SLICE = 0.0005

    # Methods between {#waiting_caller?} and the caller of the hook.
    OWN_FRAMES = %w[await_transfer transfer_at_least transfer_least locked io_read io_write].freeze

    EVENT = { read: IO::READABLE, write: IO::WRITABLE }.freeze

    private_constant :EVENT, :PIPE_CHUNK, :DEVICE_CHUNK, :TIME_SLICE, :OWN_FRAMES

    # Lets other fibers run if none has waited for a time slice. Not in virtual time, where the order must not depend on the
    # machine.
    #
    # @return [nil]
    # @api private
    def yield_if_slice_spent
      self.yield if Clock.now - @clock > TIME_SLICE && !@timers.virtual_now
      nil
    end

    private

    # Up to Ruby 4.0: at least `least` bytes, fewer only at the end or at an error; 0: one attempt that does not wait.
    def transfer_least(direction, io, buffer, offset, least)
      yield_if_due(io)
      io = check_transfer(io, buffer, offset, least)
      locked(buffer) { transfer_at_least(direction, io, buffer, offset, least) }
    end

    # From Ruby 4.1 on: one transfer of at most `most` bytes.
    def transfer_once(direction, io, buffer, offset, most)
      yield_if_due(io)
      io = check_transfer(io, buffer, offset, most)
      attempt_transfer(direction, io, buffer, offset, most)
    end

    # Operations on files take long, so each asks the clock. Of other transfers each sixteenth does: a turn has many.
    def yield_if_due(io)
      @transfers += 1 unless (is_file = File === io)
      yield_if_slice_spent if is_file || @transfers.nobits?(15)
    end

    # Ruby locks a buffer while it reads or writes, so that no other fiber frees the memory. The VM's own buffers are locked.
    def locked(buffer, &) = buffer.locked? ? yield : buffer.locked(&)

    # In the order in which Ruby itself looks at them.
    def check_transfer(io, buffer, offset, length)
      [offset, length].each { |number| raise TypeError, "no implicit conversion of #{number.class} into Integer" unless Integer === number }
      raise TypeError, "wrong argument type #{buffer.class} (expected IO::Buffer)" unless IO::Buffer === buffer
      raise ArgumentError, "offset and length can't be negative" if offset.negative? || length.negative?
      raise ArgumentError, "Specified offset+length is bigger than the buffer size!" if offset + length > buffer.size

      check_io(io)
    end

    # One system call that does not wait, not even on a descriptor that blocks (an inherited standard input, a terminal).
    # Other processes share the flag of that descriptor's file description, so the flag is not changed. Readiness is asked
    # for first, and little is written.
    #
    # @return [Integer] bytes, or -errno
    def attempt_transfer(direction, io, buffer, offset, most)
      # A read or write of nothing waits for nothing, and reports an IO that is closed or not open in this direction.
      return attempt_once(direction, io, buffer, buffer.size, 0) if most.zero?

      unless nonblocking?(io)
        return EAGAIN unless Descriptors.ready_now(io, EVENT.fetch(direction))
        if VM::WINDOWS && direction == :write && File.pipe?(io) # a full pipe counts as writable
          return run_on_own_thread { attempt_once(direction, io, buffer, offset, most) }
        end

        most = [most, File.chardev?(io) ? DEVICE_CHUNK : PIPE_CHUNK].min if direction == :write && !File.file?(io)
      end
      answer = attempt_once(direction, io, buffer, offset, most)
      VM::WINDOWS && direction == :read && answer == -Errno::ESHUTDOWN::Errno ? 0 : answer # as in the native scheduler
    end

    # The one call of IO::Buffer#read or #write. A slice is made only where the call cannot be told of the end: Ruby reads into a
    # frozen buffer, but not into a slice of one.
    def attempt_once(direction, io, buffer, offset, most)
      Fiber.blocking do
        next buffer.public_send(direction, io, offset, most) if VM::BUFFER_CONTRACT == 4
        next buffer.public_send(direction, io, 0, offset) if offset + most == buffer.size

        buffer.slice(offset, most).public_send(direction, io, 0)
      end
    end

    # @return [Boolean] whether to attempt again
    # @raise [IO::TimeoutError] the time is over and nothing has been transferred
    def await_transfer(direction, io, total, least)
      return false unless total < least || waiting_caller?
      return true if io_wait(io, EVENT.fetch(direction), nil)
      return false if total.positive?

      raise IO::TimeoutError, "Blocking operation timed out!"
    end

    # On Windows nothing tells whether a descriptor blocks, and each socket does at first. So it is changed once. What a file is, takes
    # longer to ask there than to write a line.
    def nonblocking?(io)
      if VM::WINDOWS
        @nonblocking[io] = BasicSocket === io ? io.nonblock = true : File.file?(io) unless @nonblocking.key?(io)
        return @nonblocking[io]
      end
      io.respond_to?(:nonblock?) && io.nonblock?
    rescue Errno::EINVAL
      false # to Ruby for Windows a socket that was made by dup is a pipe
    rescue Ractor::UnsafeError
      false # IO#nonblock? of Ruby 3.3 is for the main Ractor only; in another one readiness is asked for first
    end

    # IO#sysread and IO#syswrite wait by themselves, but no longer once io_read and io_write exist. They can be told from
    # IO#read_nonblock, which must not wait, by name only.
    def waiting_caller?
      caller = caller_locations(2, 10).find { |frame| !OWN_FRAMES.include?(frame.base_label) }
      %w[sysread syswrite].include?(caller&.base_label)
    end

    # io_read and io_write of interface versions 2 and 3. They are written as methods, because methods made of blocks are
    # refused in other Ractors.
    module AtLeast
      def io_read(io, buffer, length, offset) = transfer_least(:read, io, buffer, offset, length)
      def io_write(io, buffer, length, offset) = transfer_least(:write, io, buffer, offset, length)
    end

    # io_read and io_write of interface version 4.
    module AtMost
      def io_read(io, buffer, offset, length) = transfer_once(:read, io, buffer, offset, length)
      def io_write(io, buffer, offset, length) = transfer_once(:write, io, buffer, offset, length)
    end

    private_constant :AtLeast, :AtMost
  end
end

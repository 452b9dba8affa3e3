# frozen_string_literal: true

begin
  require "io/nonblock"
rescue LoadError
  nil # without io/nonblock, every descriptor is treated as blocking, and polled before use
end

module Reactor
  class PortableScheduler
    # io_read and io_write for both versions of the interface, built on attempts that do not wait.

    include TransferLoop

    # Bytes to write per attempt to a blocking descriptor. A writable pipe takes this many without blocking (PIPE_BUF).
    PIPE_CHUNK = 4096

    # Bytes to write per attempt to a blocking terminal. A nearly full terminal may block nevertheless. (The native scheduler
    # avoids that by opening the terminal a second time, in non-blocking mode.)
    DEVICE_CHUNK = 32

    # Seconds since the last poll for which a fiber may continue with operations that need not wait, such as transfers.
    TIME_SLICE = 0.0005

    # The methods between {#waiting_caller?} and the hook's caller.
    OWN_FRAMES = %w[await_transfer transfer_at_least transfer_least locked io_read io_write].freeze

    EVENT = { read: IO::READABLE, write: IO::WRITABLE }.freeze

    private_constant :EVENT, :PIPE_CHUNK, :DEVICE_CHUNK, :TIME_SLICE, :OWN_FRAMES

    # Lets other fibers run if no fiber has waited for a time slice. Does nothing in virtual time, where the order must not depend
    # on the machine's speed.
    #
    # @return [nil]
    # @api private
    def yield_if_slice_spent
      self.yield if Clock.now - @clock > TIME_SLICE && !@timers.virtual_now
      nil
    end

    private

    # Up to Ruby 4.0: transfers at least `least` bytes, fewer only at the end of the stream or after an error; 0: makes one
    # attempt that does not wait.
    def transfer_least(direction, io, buffer, offset, least)
      yield_if_due(io)
      io = check_transfer(io, buffer, offset, least)
      locked(buffer) { transfer_at_least(direction, io, buffer, offset, least) }
    end

    # From Ruby 4.1 on: makes one transfer of at most `most` bytes.
    def transfer_once(direction, io, buffer, offset, most)
      yield_if_due(io)
      io = check_transfer(io, buffer, offset, most)
      attempt_transfer(direction, io, buffer, offset, most)
    end

    # File operations are slow, so each checks the clock. Other transfers are frequent, so only every sixteenth does.
    def yield_if_due(io)
      @transfers += 1 unless (is_file = File === io)
      yield_if_slice_spent if is_file || @transfers.nobits?(15)
    end

    # Ruby locks a buffer during a read or write, so that no other fiber frees its memory. The VM's own buffers are locked
    # already.
    def locked(buffer, &) = buffer.locked? ? yield : buffer.locked(&)

    # Checks the arguments in the same order as Ruby.
    def check_transfer(io, buffer, offset, length)
      [offset, length].each { |number| raise TypeError, "no implicit conversion of #{number.class} into Integer" unless Integer === number }
      raise TypeError, "wrong argument type #{buffer.class} (expected IO::Buffer)" unless IO::Buffer === buffer
      raise ArgumentError, "offset and length can't be negative" if offset.negative? || length.negative?
      raise ArgumentError, "Specified offset+length is bigger than the buffer size!" if offset + length > buffer.size

      check_io(io)
    end

    # One system call that does not wait, even on a blocking descriptor (an inherited standard input, a terminal). Its O_NONBLOCK
    # flag is not changed, because other processes may share it. Instead, readiness is checked first, and only little is written.
    #
    # @return [Integer] number of bytes, or -errno
    def attempt_transfer(direction, io, buffer, offset, most)
      # Reading or writing nothing never waits, but reports an IO that is closed or not open in this direction.
      return attempt_once(direction, io, buffer, buffer.size, 0) if most.zero?

      unless nonblocking?(io)
        return EAGAIN unless Descriptors.ready_now(io, EVENT.fetch(direction))
        if VM::WINDOWS && direction == :write && File.pipe?(io) # there, a full pipe counts as writable
          return run_on_own_thread { attempt_once(direction, io, buffer, offset, most) }
        end

        most = [most, File.chardev?(io) ? DEVICE_CHUNK : PIPE_CHUNK].min if direction == :write && !File.file?(io)
      end
      answer = attempt_once(direction, io, buffer, offset, most)
      VM::WINDOWS && direction == :read && answer == -Errno::ESHUTDOWN::Errno ? 0 : answer # end of stream
    end

    # Makes a single call of IO::Buffer#read or #write. A slice is made only if the call does not accept the end as an argument:
    # Ruby reads into a frozen buffer, but not into a slice of one.
    def attempt_once(direction, io, buffer, offset, most)
      Fiber.blocking do
        next buffer.public_send(direction, io, offset, most) if VM::BUFFER_CONTRACT == 4
        next buffer.public_send(direction, io, 0, offset) if offset + most == buffer.size

        buffer.slice(offset, most).public_send(direction, io, 0)
      end
    end

    # @return [Boolean] whether to try again
    # @raise [IO::TimeoutError] IO#timeout has elapsed and nothing has been transferred
    def await_transfer(direction, io, total, least)
      return false unless total < least || waiting_caller?
      return true if io_wait(io, EVENT.fetch(direction), nil)
      return false if total.positive?

      raise IO::TimeoutError, "Blocking operation timed out!"
    end

    # On Windows, nothing tells whether a descriptor blocks, and every new socket does. So each socket is made non-blocking once,
    # and the result is kept, because finding out the type of a file takes longer on Windows than writing a line.
    def nonblocking?(io)
      if VM::WINDOWS
        @nonblocking[io] = BasicSocket === io ? io.nonblock = true : File.file?(io) unless @nonblocking.key?(io)
        return @nonblocking[io]
      end
      io.respond_to?(:nonblock?) && io.nonblock?
    rescue Errno::EINVAL
      false # Ruby on Windows takes a socket made by dup for a pipe
    rescue Ractor::UnsafeError
      false # in Ruby 3.3, IO#nonblock? works only in the main Ractor; elsewhere, readiness is checked first
    end

    # IO#sysread and IO#syswrite wait by themselves, but not when io_read and io_write exist. Only the method name distinguishes
    # them from IO#read_nonblock, which must not wait.
    def waiting_caller?
      caller = caller_locations(2, 10).find { |frame| !OWN_FRAMES.include?(frame.base_label) }
      %w[sysread syswrite].include?(caller&.base_label)
    end

    # io_read and io_write of interface versions 2 and 3. They are defined by `def`, because other Ractors cannot call methods
    # defined by blocks.
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

# frozen_string_literal: true

module Reactor
  class Rack
    # Writes to a client for as long as the client takes bytes. That a write has not ended does not tell: a socket is writable only
    # when a third of its buffer is free, which is more than a megabyte on Linux. So the length of its queue is watched as well. A
    # client acknowledges in steps of a segment, 64 kB on the loopback interface, so it may let the time elapse once.
    #
    # @api private
    class Writing
      # The request of ioctl(2) for the bytes of a socket that its peer has not acknowledged. Elsewhere, only written bytes count.
      SIOCOUTQ = RUBY_PLATFORM.include?("linux") ? 0x5411 : nil
      Elapsed = Class.new(StandardError)
      private_constant :SIOCOUTQ, :Elapsed

      # Empties OpenSSL's queue of errors, which belongs to the thread: after a call that has failed on one connection, openssl 3.3 takes
      # what is left in it for an error of the next call on another.
      def self.forget_errors(io) = IO === io || OpenSSL.errors

      # @param io [IO, OpenSSL::SSL::SSLSocket] its timeout is how long the client may take nothing
      def initialize(io)
        @io = io
        @socket = io.to_io
      end

      # @return [void]
      # @raise [IO::TimeoutError]
      def write(bytes)
        until (count = @io.write_nonblock(bytes, exception: false)) == bytes.bytesize
          case count
          when :wait_writable then wait
          when :wait_readable then @socket.wait_readable(@socket.timeout) || raise(IO::TimeoutError, "the client does not answer") # TLS
          else bytes = bytes.byteslice(count, bytes.bytesize)
          end
        end
      rescue StandardError
        Writing.forget_errors(@io)
        raise
      end

      # @param length [Integer] bytes to copy; fewer if the file ends before
      # @return [Integer] bytes copied
      # @raise [IO::TimeoutError]
      def copy(file, length)
        return copy_parts(file, length) unless IO === @io

        watch(-file.pos)
        begin
          Timeout.timeout(@io.timeout, Elapsed) { IO.copy_stream(file, @io, length - file.pos) }
        rescue Elapsed
          check(-file.pos)
          retry
        end
        file.pos
      end

      private

      def copy_parts(file, length)
        while (left = length - file.pos).positive? && (part = file.read([left, READ * 16].min))
          write(part)
        end
        file.pos
      end

      # Waits until the socket is writable.
      def wait
        watch(0)
        check(0) until @socket.wait_writable(@socket.timeout)
      end

      # @param left [Integer] decreases with each byte that is written
      def watch(left)
        @left = left + queued
        @stalled = 0
      end

      def check(left)
        before, @left = @left, left + queued
        raise IO::TimeoutError, "the client does not read" if (@stalled = @left < before ? 0 : @stalled + 1) == 2
      end

      # @return [Integer] bytes that the client has not acknowledged
      def queued
        return 0 unless SIOCOUTQ

        @socket.ioctl(SIOCOUTQ, count = [0].pack("i"))
        count.unpack1("i")
      rescue SystemCallError
        0
      end
    end
    private_constant :Writing
  end
end

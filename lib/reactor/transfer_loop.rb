# frozen_string_literal: true

module Reactor
  # io_read and io_write up to Ruby 4.0, built on non-waiting attempts. A class that includes this module provides two private
  # methods:
  #
  # [attempt_transfer(direction, io, buffer, offset, most)]  makes one attempt; returns the number of bytes, or -errno
  # [await_transfer(direction, io, total, least)]            waits after EAGAIN; returns whether to try again
  #
  # @api private
  module TransferLoop
    EAGAIN = -Errno::EWOULDBLOCK::Errno # another number on Windows
    private_constant :EAGAIN

    private

    # @param direction [Symbol] :read or :write
    # @param offset [Integer] position in the buffer
    # @param least [Integer] minimum number of bytes; 0: one attempt
    # @return [Integer] number of bytes, below the minimum only at the end of the stream or after an error; 0 at the end of the
    #   stream; -errno if nothing was transferred
    # @raise [IO::Buffer::AllocationError] the buffer was freed or shrunk meanwhile
    def transfer_at_least(direction, io, buffer, offset, least)
      total = 0
      size = buffer.size
      while true # because AsyncSelector has a method `loop`
        raise IO::Buffer::AllocationError, "The buffer is not allocated!" if buffer.size < size # freed during the wait

        count = attempt_transfer(direction, io, buffer, offset + total, size - offset - total)
        if count.positive?
          total += count
          return total if total >= least
        elsif count != EAGAIN || !await_transfer(direction, io, total, least)
          return total.zero? ? count : total
        end
      end
    end
  end
end

# frozen_string_literal: true

module Reactor
  # io_read and io_write up to Ruby 4.0, over attempts that do not wait. The class that includes it has two private methods:
  #
  # [attempt_transfer(direction, io, buffer, offset, most)]  one attempt: bytes, or -errno
  # [await_transfer(direction, io, total, least)]            waits after EAGAIN; whether to attempt again
  #
  # @api private
  module TransferLoop
    EAGAIN = -Errno::EWOULDBLOCK::Errno # another number on Windows
    private_constant :EAGAIN

    private

    # @param direction [Symbol] :read or :write
    # @param offset [Integer] in the buffer
    # @param least [Integer] bytes at least; 0: one attempt
    # @return [Integer] bytes, fewer only at the end or at an error; 0 at the end; -errno if nothing was transferred
    # @raise [IO::Buffer::AllocationError] the buffer was freed, or made smaller, in between
    def transfer_at_least(direction, io, buffer, offset, least)
      total = 0
      size = buffer.size
      while true # "loop" is another method in AsyncSelector
        raise IO::Buffer::AllocationError, "The buffer is not allocated!" if buffer.size < size # freed while it waited

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

# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # Which order and meaning of arguments io_read and io_write have on this Ruby: 4 from Ruby 4.1 on, 3 before.
    CONTRACT = defined?(IO::Buffer::VERSION) && IO::Buffer::VERSION >= 3 ? 4 : 3

    # What io_read and io_write do: attempts that do not wait, whichever order and meaning of arguments this Ruby has.
    module Transfers
      # Bytes written at once to a descriptor that blocks: what is writable takes this much without blocking (PIPE_BUF).
      MOUTHFUL = 4096

      # Bytes written at once to a terminal that blocks. One that is nearly full may block all the same: the native selector
      # opens it once more, without blocking.
      SIP = 32

      # How IO::Buffer#read and #write are told to make one attempt only.
      ONCE = CONTRACT == 4 ? [] : [0].freeze

      EAGAIN = -Errno::EAGAIN::Errno

      OWN_FRAMES = %w[loop transfer_least io_read io_write].freeze

      private_constant :MOUTHFUL, :SIP, :ONCE, :EAGAIN, :OWN_FRAMES

      private

      # Up to 4.0: at least +least+ bytes, fewer only at the end or at an error; 0: one attempt, no waiting.
      def transfer_least(direction, io, buffer, offset, least)
        give_way
        event = direction == :read ? IO::READABLE : IO::WRITABLE
        check_transfer(io, offset, least)
        total = 0
        loop do
          count = attempt(direction, event, io, buffer, offset + total, buffer.size - offset - total)
          total += count if count.positive?
          return total if count.zero? || (count.positive? && total >= least)
          next if count.positive?
          return total.zero? ? count : total unless count == EAGAIN
          return count unless total < least || waiting_caller?

          next if io_wait(io, event, nil)
          return total if total.positive?

          raise IO::TimeoutError, "Blocking operation timed out!"
        end
      end

      # From 4.1 on: one transfer of at most +most+ bytes.
      def transfer_once(direction, io, buffer, offset, most)
        give_way
        check_transfer(io, offset, most)
        return 0 if most.zero?

        attempt(direction, direction == :read ? IO::READABLE : IO::WRITABLE, io, buffer, offset, [most, buffer.size - offset].min)
      end

      # Transfers that need not wait let the others go first now and then: the clock is asked at each sixteenth of them.
      def give_way
        @transfers += 1
        self.yield if @transfers.nobits?(15) && PortableScheduler.now - @looked > TERM
      end

      def check_transfer(io, offset, length)
        check_io(io)
        [offset, length].each { |number| raise TypeError, "no implicit conversion of #{number.class} into Integer" unless number.is_a?(Integer) }
        raise ArgumentError, "offset and length can't be negative" if offset.negative? || length.negative?
      end

      # One system call that does not wait: bytes, or -errno. Not even on a descriptor that blocks (an inherited standard
      # input, a terminal), whose flag is not ours to change: there readiness is asked for first, and little is written.
      def attempt(direction, event, io, buffer, offset, most)
        raise ArgumentError, "offset beyond the end of the buffer" if most.negative?
        return 0 if most.zero?

        unless nonblocking?(io)
          return EAGAIN unless ready_now(io, event)

          most = [most, io.stat.chardev? ? SIP : MOUTHFUL].min if direction == :write && !io.stat.file?
        end
        Fiber.blocking { buffer.slice(offset, most).public_send(direction, io, *ONCE) }
      end

      def nonblocking?(io)
        io.respond_to?(:nonblock?) && io.nonblock?
      rescue Ractor::UnsafeError
        false # IO#nonblock? of Ruby 3.3 is for the main Ractor only; elsewhere we look first
      end

      # IO#sysread and IO#syswrite wait by themselves, but not any more once io_read and io_write exist. They cannot be
      # told from IO#read_nonblock, which must not wait, but by name.
      def waiting_caller?
        caller = caller_locations(3, 8).find { |frame| !OWN_FRAMES.include?(frame.base_label) }
        %w[sysread syswrite].include?(caller&.base_label)
      end
    end

    # io_read and io_write of interface versions 2 and 3. Methods, no blocks: those are refused in other Ractors.
    module AtLeast
      def io_read(io, buffer, length, offset) = transfer_least(:read, io, buffer, offset, length)
      def io_write(io, buffer, length, offset) = transfer_least(:write, io, buffer, offset, length)
    end

    # The same of version 4.
    module AtMost
      def io_read(io, buffer, offset, length) = transfer_once(:read, io, buffer, offset, length)
      def io_write(io, buffer, offset, length) = transfer_once(:write, io, buffer, offset, length)
    end

    private_constant :AtLeast, :AtMost, :Transfers
  end
end

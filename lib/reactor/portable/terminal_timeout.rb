# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # Terminals whose read(2) ends without as many bytes as it waits for: at once, or after a time (VMIN and VTIME of termios(3)).
    module TerminalTimeout
      # The ioctl(2) that answers with the settings, and their places; the one that answers how many bytes are there; and the device
      # of the masters of pseudo-terminals: Linux, where its numbers are the usual ones.
      TCGETS = 0x5401
      FIONREAD = 0x541B
      PTMX = [5, 2].freeze
      LOCAL_MODES = 12
      VTIME = 22
      VMIN = 23
      ICANON = 2
      KNOWN = /\A(x86_64|i[3-6]86|aarch64|arm|riscv).*linux/
      private_constant :TCGETS, :FIONREAD, :PTMX, :LOCAL_MODES, :VTIME, :VMIN, :ICANON, :KNOWN

      class << self
        # @param io [IO]
        # @return [Float, nil] seconds that a read waits for the first byte before it ends: VTIME, if VMIN is 0. IO.select does not
        #   report that. nil: no terminal, or one that is waited for until it is readable.
        def read_limit(io)
          least, pause = limits(io)
          pause if least&.zero?
        end

        # @return [Float, nil] seconds that a read of at most this many bytes waits for the next byte after these: VTIME, as long as
        #   they are fewer than VMIN. IO.select reports the first byte. nil: it returns.
        def pause_limit(io, done, most)
          least, pause = limits(io)
          pause if least && pause.positive? && done < [least, most].min
        end

        # @return [Integer] bytes that can be read without waiting for a next one; 1 where the terminal has ended
        def available(io)
          io.ioctl(FIONREAD, count = "\0".b * 4)
          [count.unpack1("l"), 1].max
        end

        private

        # VMIN and VTIME. The master of a pseudo-terminal answers with the settings of the other end, which do not apply to it.
        def limits(io)
          return unless RUBY_PLATFORM.match?(KNOWN) && io.tty?

          io.ioctl(TCGETS, settings = "\0".b * 64)
          return if settings.unpack1("L", offset: LOCAL_MODES).anybits?(ICANON) || io.stat.then { |stat| [stat.rdev_major, stat.rdev_minor] } == PTMX

          [settings.getbyte(VMIN), settings.getbyte(VTIME) / 10.0]
        end
      end
    end
    private_constant :TerminalTimeout
  end
end

# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # Terminals whose read(2) returns without data after a time (VTIME), or at once.
    module TerminalTimeout
      # The ioctl(2) that answers with the settings, and their places: Linux, where its numbers are the usual ones.
      TCGETS = 0x5401
      LOCAL_MODES = 12
      VTIME = 22
      VMIN = 23
      ICANON = 2
      KNOWN = /\A(x86_64|i[3-6]86|aarch64|arm|riscv).*linux/
      private_constant :TCGETS, :LOCAL_MODES, :VTIME, :VMIN, :ICANON, :KNOWN

      # @param io [IO]
      # @return [Float, nil] seconds that a read waits for the first byte before it ends: VTIME, if VMIN is 0 (termios(3)).
      #   IO.select does not report that. nil: no terminal, or one that is waited for until it is readable.
      def self.read_limit(io)
        return unless RUBY_PLATFORM.match?(KNOWN) && io.tty?

        io.ioctl(TCGETS, settings = "\0".b * 64)
        settings.getbyte(VTIME) / 10.0 if settings.unpack1("L", offset: LOCAL_MODES).nobits?(ICANON) && settings.getbyte(VMIN).zero?
      end
    end
    private_constant :TerminalTimeout
  end
end

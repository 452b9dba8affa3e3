# frozen_string_literal: true

module Reactor
  module Top
    # The live view on this process's terminal: takes and draws snapshots until a key ends it.
    class Screen
      ENTER = "\e[?1049h\e[?25l" # alternate screen, hidden cursor
      LEAVE = "\e[?25h\e[?1049l"
      HOME = "\e[H"
      REST_OF_LINE = "\e[K"
      REST_OF_SCREEN = "\e[J"
      QUIT = /[qQ\x03\x04]/ # in raw mode, Ctrl-C and Ctrl-D arrive as characters
      KEPT = 300            # snapshots
      PATIENCE = 1          # seconds to wait for an answer before checking the keyboard again

      # @param pid [Integer]
      # @param interval [Float] seconds between two snapshots
      # @param first [Snapshot]
      def initialize(pid, interval, first)
        @pid = pid
        @interval = interval
        @snapshots = [first]
        @answered = Clock.now
      end

      # Runs until a key ends it. Restores the terminal, even after a signal.
      #
      # @return [nil]
      # @raise [Failure] the process has ended or is no longer observable
      def run
        $stdin.raw do
          $stdout.write(ENTER)
          draw
          until quit?
            take_snapshot
            draw
          end
        ensure
          $stdout.write(LEAVE)
          $stdout.flush
        end
      end

      private

      # Waits for a key until the next snapshot is due.
      def quit?
        !!$stdin.wait_readable(@interval) && $stdin.readpartial(64).match?(QUIT)
      rescue SystemCallError, EOFError
        true # the terminal is gone
      end

      def take_snapshot
        found = Snapshot.at(@pid, PATIENCE, @snapshots.last)
        silent = Clock.now - @answered
        return @silence = format("process %d has not answered for %.0f s", @pid, silent) unless found

        @silence = nil
        @answered = Clock.now
        @snapshots << found
        @snapshots.shift if @snapshots.size > KEPT
      end

      def draw
        height, width = $stdout.winsize
        height, width = 24, 80 if height.zero? || width.zero?
        lines = View.new(@snapshots, @silence).lines(height, width)
        $stdout.write(HOME, lines.map { |line| "#{line}#{REST_OF_LINE}" }.join("\r\n"), REST_OF_SCREEN)
        $stdout.flush
      end
    end
  end
end

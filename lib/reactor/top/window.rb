# frozen_string_literal: true

require "io/console"
require_relative "../clock"
require_relative "source"
require_relative "view"

module Reactor
  module Top
    # The live view: looks again and again, draws, and obeys keys, on the terminal of this process.
    class Window
      ENTER = "\e[?1049h\e[?25l" # the other screen, no cursor
      LEAVE = "\e[?25h\e[?1049l"
      HOME = "\e[H"
      REST_OF_LINE = "\e[K"
      REST_OF_SCREEN = "\e[J"
      QUIT = /[qQ\x03\x04]/ # Ctrl-C and Ctrl-D come as keys
      KEPT = 300            # looks
      PATIENCE = 2          # seconds without an answer until that is said

      # @param source [Source]
      # @param interval [Float] seconds between two looks
      def initialize(source, interval)
        @source = source
        @interval = interval
        @looks = []
      end

      # Until a key ends it.
      #
      # @return [nil]
      # @raise [Source::Failure] the process has ended, or does not observe any more
      def run
        take(@source.look) # fails before anything is drawn
        on_screen { loop { break if step == :quit } }
        nil
      ensure
        @source.drop
      end

      private

      # The terminal is as it was afterwards, also after a signal.
      def on_screen
        @changed, change = IO.pipe
        traps = { "WINCH" => nil, "CONT" => nil, "TERM" => Interrupt, "HUP" => Interrupt }.to_h do |signal, error|
          [signal, trap(signal) { error ? raise(error) : change.write_nonblock(".", exception: false) }]
        end
        $stdin.raw do
          $stdout.write(ENTER)
          $stdout.flush
          yield
        ensure
          $stdout.write(LEAVE)
          $stdout.flush
        end
      ensure
        traps&.each { |signal, before| trap(signal, before || "DEFAULT") }
      end

      def step
        draw
        found, = IO.select([$stdin, @changed, @source.io].compact, nil, nil, pause)
        @changed.read_nonblock(64, exception: false) if found&.include?(@changed)
        return :quit if found&.include?($stdin) && quit?

        look if looking? || Clock.now >= @due
      end

      def quit?
        keys = $stdin.read_nonblock(64, exception: false)
        keys.nil? || (keys.is_a?(String) && keys.match?(QUIT))
      rescue SystemCallError, EOFError
        true # the terminal is gone
      end

      def looking? = !@source.io.nil?

      # Until the next look; or, while an answer is awaited, until what is drawn changes.
      def pause = looking? ? 0.5 : [@due - Clock.now, 0].max

      def look
        found = @source.advance
        found ? take(found) : @due = [@due, Clock.now + (looking? ? 0 : 0.2)].max
      end

      def take(look)
        @looks << look
        @looks.shift if @looks.size > KEPT
        @answered = Clock.now
        @due = @answered + @interval
      end

      def draw
        height, width = $stdout.winsize
        height, width = 24, 80 if height.zero? || width.zero?
        lines = View.new(@looks, silence).lines(height, width)
        $stdout.write(HOME, lines.map { |line| "#{line}#{REST_OF_LINE}" }.join("\r\n"), REST_OF_SCREEN)
        $stdout.flush
      end

      def silence
        seconds = Clock.now - @answered
        format("process %d has not answered for %.0f s", @source.pid, seconds) if seconds > @interval + PATIENCE
      end
    end
  end
end

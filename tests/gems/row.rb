# frozen_string_literal: true

# The table of gems: what each row calls, and what it needs for it.
module Gems
  # One row. `call` is the operation. Its request, with the word of the gate in it, is sent to the port of the gate.
  #
  # @!attribute name [String] of the row
  # @!attribute gem [String] the gem whose version is shown
  # @!attribute requires [Array<String>] what is loaded
  # @!attribute server [Symbol] the server of SERVERS behind the gate
  # @!attribute beside [Symbol, nil] a server whose operations ask the one behind the gate
  # @!attribute verdict [Symbol] what is expected: :works, :setting, :blocks
  # @!attribute setting [String, nil] the setting without which the operations do not overlap, as code
  # @!attribute advice [String, nil] what to do; the page writes it behind the setting and a comma
  # @!attribute what [String] the operation, for the page
  # @!attribute set [Proc, nil] makes the setting
  # @!attribute scheduler [Proc, nil] is the setting: makes the scheduler
  # @!attribute prepare [Proc, nil] runs once
  # @!attribute open [Proc, nil] runs for each operation before they begin, and returns the connection
  # @!attribute call [Proc] the operation; gets the connection and the number of the operation
  # @!attribute close [Proc, nil]
  Row = Struct.new(:name, :gem, :requires, :server, :beside, :verdict, :setting, :advice, :what, :set, :scheduler, :prepare, :open, :call, :close, keyword_init: true) do
    # How the row is run: in fibers as it is, and with what its verdict names.
    def modes = [:plain, *remedy]

    # @return [Symbol, nil] the mode in which the operations overlap if they do not as they are
    def remedy = { setting: :set, blocks: :offload }[verdict]

    # Whether the row tries an adapter of this library. The page names it where the gem blocks.
    def adapter? = name.end_with?(" with its adapter")

    # @param outcomes [Hash{Symbol => Trial::Outcome}] by mode; :with is that of the remedy. Without :plain it is not asked whether
    #   the remedy is needed
    # @return [Boolean] whether they show what the verdict says
    def true_of?(outcomes)
      verdict == :works ? outcomes[:plain].ok? : !outcomes[:plain]&.ok? && outcomes[:with].ok?
    end
  end

  ROWS = [] # rubocop:disable Style/MutableConstant -- filled by rows/*.rb

  # What the blocks of a row may call, in the process that runs it.
  class Context
    # The port of the gate, the directory of the server (or of the one beside it), and its port.
    attr_reader :mode, :port, :directory, :beside

    def initialize(mode, port, directory, beside) = (@mode, @port, @directory, @beside = mode, port, directory, beside)

    def url = "http://127.0.0.1:#{port}/#{Gate::WORD}"

    # An operation of plain Ruby, for rows whose gem runs code of the program.
    def visit = TCPSocket.open("127.0.0.1", port) { |socket| socket.write("GET /#{Gate::WORD} HTTP/1.0\r\n\r\n"); socket.read }

    # Twenty of them at once, started by one operation.
    def visit_at_once
      answers = Thread::Queue.new
      20.times { Fiber.schedule { answers << visit } }
      Array.new(20) { answers.pop }.last
    end
  end

  class << self
    def row(name, **attributes)
      ROWS << Row.new(name: name, gem: name[/\A[\w-]+/], requires: [name[/\A[\w-]+/]], server: :nginx, verdict: :works, **attributes)
    end

    # In the order of the page.
    def load_rows = %w[databases stores http protocols servers code with_adapters].each { |file| require_relative "rows/#{file}" }

    def find(name) = ROWS.find { |row| row.name == name } || raise(ArgumentError, "no row #{name.inspect}")
  end
end

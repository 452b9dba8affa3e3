# frozen_string_literal: true

# The layers of the code as data, in the files in this folder. The layers tests check them, and docs/architecture.svg is drawn
# from them (rake docs:architecture).
module Layering
  # [name]     a module or folder
  # [below]    the modules that it may use
  # [purpose]  a short description
  Entry = Struct.new(:name, :below, :purpose)

  module_function

  # @return [Array<Entry>] the entries of a file, lowest first
  def read(file)
    File.readlines(File.join(__dir__, file), chomp: true).grep_v(/\A#/).map do |line|
      name, below, purpose = line.match(/\A(\S+): (.*)# (.*)\z/).captures
      Entry.new(name, below.split, purpose)
    end
  end

  # Places each module one layer above the highest that it may use.
  #
  # @return [Array<Array<Entry>>] lowest layer first
  def stacked(modules)
    heights = {}
    modules.each do |entry|
      own = modules.select { |other| entry.below.any? { |used| used.split("::").first == other.name } }
      heights[entry.name] = own.map { |other| heights.fetch(other.name) + 1 }.max || 0
    end
    modules.group_by { |entry| heights.fetch(entry.name) }.sort.map(&:last)
  end

  # Draws the layers of the library, the extension and the core, stacked.
  class Drawing
    PARTS = [
      ["lib", "lib/reactor: the library"],
      ["extension", "ext/reactor: the extension"],
      ["scheduler", "ext/scheduler: the scheduler's state and its system calls, without Ruby"],
      ["core", "src: the core, without Ruby"]
    ].freeze
    WIDTH = 1000
    LINE = 17 # pixels of a line of text
    BOX = 2 * LINE + 12
    GAP = 8

    def initialize
      @y = GAP
      @shapes = []
    end

    # @return [String] SVG
    def to_s
      PARTS.each { |file, title| part(file, title) }
      <<~SVG
        <svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 #{WIDTH} #{@y}" font-family="sans-serif" font-size="12">
        <!-- made by rake docs:architecture -->
        <rect width="#{WIDTH}" height="#{@y}" fill="#ffffff"/>
        #{@shapes.join("\n")}
        </svg>
      SVG
    end

    private

    def part(file, title)
      text(GAP, @y + 14, title, "font-weight=\"bold\" font-size=\"14\"")
      @y += 22
      Layering.stacked(Layering.read(file)).reverse_each { |modules| modules.each_slice(4) { |row| layer(row) } }
      @y += GAP
    end

    def layer(modules)
      width = (WIDTH - GAP * (modules.size + 1)) / modules.size
      modules.each_with_index do |entry, place|
        x = GAP + place * (width + GAP)
        @shapes << %(<rect x="#{x}" y="#{@y}" width="#{width}" height="#{row_height(modules, width)}" rx="4" fill="#eef3f8" stroke="#7a94ad"/>)
        text(x + 8, @y + 17, entry.name, "font-weight=\"bold\"")
        wrap(entry.purpose, width).each_with_index { |line, number| text(x + 8, @y + 17 + (number + 1) * LINE, line) }
      end
      @y += row_height(modules, width) + GAP
    end

    def row_height(modules, width) = BOX + (modules.map { |entry| wrap(entry.purpose, width).size }.max - 1) * LINE

    def wrap(purpose, width) = purpose.scan(/\S.{0,#{width / 7}}(?=\s|\z)/)

    def text(x, y, words, attributes = "")
      @shapes << %(<text x="#{x}" y="#{y}" fill="#1c2833" #{attributes}>#{words.gsub("&", "&amp;").gsub("<", "&lt;")}</text>)
    end
  end
end

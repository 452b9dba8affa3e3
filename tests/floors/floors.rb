# frozen_string_literal: true

# The floors of the code, as data: the files beside this one. The layers tests hold the code to them, and
# docs/architecture.svg is drawn from them (rake docs:architecture).
module Floors
  # [name]     a module or folder
  # [below]    the rooms that it may use
  # [purpose]  what it is, in a few words
  Room = Struct.new(:name, :below, :purpose)

  module_function

  # @return [Array<Room>] of one file, the lowest first
  def read(file)
    File.readlines(File.join(__dir__, file), chomp: true).grep_v(/\A#/).map do |line|
      name, below, purpose = line.match(/\A(\S+): (.*)# (.*)\z/).captures
      Room.new(name, below.split, purpose)
    end
  end

  # Each room one floor above the highest that it may use.
  #
  # @return [Array<Array<Room>>] the lowest floor first
  def stacked(rooms)
    heights = {}
    rooms.each do |room|
      own = rooms.select { |other| room.below.any? { |used| used.split("::").first == other.name } }
      heights[room.name] = own.map { |other| heights.fetch(other.name) + 1 }.max || 0
    end
    rooms.group_by { |room| heights.fetch(room.name) }.sort.map(&:last)
  end

  # Draws the houses of the library, the extension and the core one above the other.
  class Drawing
    HOUSES = [
      ["lib", "lib/reactor: the library"],
      ["extension", "ext/reactor: the extension"],
      ["scheduler", "ext/scheduler: the scheduler's state and its system calls, without Ruby"],
      ["core", "src: the core, without Ruby"]
    ].freeze
    WIDTH = 1000
    LINE = 17 # pixels of a line of text
    ROOM = 2 * LINE + 12
    GAP = 8

    def initialize
      @y = GAP
      @shapes = []
    end

    # @return [String] SVG
    def to_s
      HOUSES.each { |file, title| house(file, title) }
      <<~SVG
        <svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 #{WIDTH} #{@y}" font-family="sans-serif" font-size="12">
        <!-- made by rake docs:architecture -->
        <rect width="#{WIDTH}" height="#{@y}" fill="#ffffff"/>
        #{@shapes.join("\n")}
        </svg>
      SVG
    end

    private

    def house(file, title)
      text(GAP, @y + 14, title, "font-weight=\"bold\" font-size=\"14\"")
      @y += 22
      Floors.stacked(Floors.read(file)).reverse_each { |rooms| rooms.each_slice(4) { |row| floor(row) } }
      @y += GAP
    end

    def floor(rooms)
      width = (WIDTH - GAP * (rooms.size + 1)) / rooms.size
      rooms.each_with_index do |room, place|
        x = GAP + place * (width + GAP)
        @shapes << %(<rect x="#{x}" y="#{@y}" width="#{width}" height="#{row_height(rooms, width)}" rx="4" fill="#eef3f8" stroke="#7a94ad"/>)
        text(x + 8, @y + 17, room.name, "font-weight=\"bold\"")
        wrap(room.purpose, width).each_with_index { |line, number| text(x + 8, @y + 17 + (number + 1) * LINE, line) }
      end
      @y += row_height(rooms, width) + GAP
    end

    def row_height(rooms, width) = ROOM + (rooms.map { |room| wrap(room.purpose, width).size }.max - 1) * LINE

    def wrap(purpose, width) = purpose.scan(/\S.{0,#{width / 7}}(?=\s|\z)/)

    def text(x, y, words, attributes = "")
      @shapes << %(<text x="#{x}" y="#{y}" fill="#1c2833" #{attributes}>#{words.gsub("&", "&amp;").gsub("<", "&lt;")}</text>)
    end
  end
end

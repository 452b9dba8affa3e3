# frozen_string_literal: true

require_relative "helper"
require_relative "../layering/layering"
require "prism"

# The layers of lib/. A part is a folder or a file of lib/reactor; a part may refer, by require or constant, to modules below
# it only. No file has more than 400 lines.
class TestLayers < ReactorTest
  # Each part and the modules that it may refer to.
  LAYERS = Layering.read("lib").to_h { |part| [part.name, part.below] }.freeze

  MAX_LINES = 400

  # One file of lib/: what it requires, and which constants it defines and uses.
  class Source
    attr_reader :path, :requires, :definitions, :uses

    # @param path [String] below lib/, without the ending
    def initialize(path, text)
      @path = path
      @requires = []
      @definitions = []
      @uses = [] # [nesting, name]
      visit(Prism.parse(text).value, [])
    end

    # The part of "reactor/patches/file" is "patches", the part of "reactor/clock" is "clock".
    def part = path.delete_prefix("reactor/").split("/").first

    private

    def visit(node, nesting)
      case node
      when Prism::ModuleNode, Prism::ClassNode
        visit(node.superclass, nesting) if node.is_a?(Prism::ClassNode) && node.superclass
        inner = nesting + node.constant_path.slice.split("::")
        @definitions << inner
        return node.body && visit(node.body, inner)
      when Prism::ConstantWriteNode then @definitions << nesting + [node.name.to_s]
      when Prism::ConstantReadNode, Prism::ConstantPathNode
        return @uses << [nesting, node.slice.delete_prefix("::").delete_prefix("Reactor::").split("::")] if node.slice.match?(/\A[\w:]+\z/)
      when Prism::CallNode
        @requires << node.arguments.arguments.first.unescaped if node.name == :require_relative
      end
      node.compact_child_nodes.each { |child| visit(child, nesting) }
    end
  end

  # The references between the files of a tree.
  class Tree
    Edge = Struct.new(:from, :to, :by)

    attr_reader :sources

    # @param texts [Hash{String => String}] text by path below lib/, without the ending
    def initialize(texts)
      @sources = texts.map { |path, text| Source.new(path, text) }
      @homes = Hash.new { |homes, name| homes[name] = [] } # constant in full => the sources that define it
      @sources.each { |source| source.definitions.each { |name| @homes[name] |= [source] } }
    end

    def edges
      @edges ||= @sources.flat_map do |from|
        required = from.requires.map { |relative| [find(from, relative), "require_relative #{relative.inspect}"] }
        used = from.uses.flat_map { |nesting, name| homes(nesting, name).then { |found| found.include?(from) ? [] : found }.map { |to| [to, name.join("::")] } }
        (required + used).uniq.map { |to, by| Edge.new(from, to, by) }
      end
    end

    # @return [Array<String>, nil] the paths of a cycle of files; nil if there is none
    def circle
      state = {}
      walk = lambda do |source, trail|
        return trail.drop(trail.index(source)).map(&:path) if state[source] == :open
        return if state[source]

        state[source] = :open
        edges.each do |edge|
          found = edge.from.equal?(source) && walk.(edge.to, trail + [source])
          return found if found
        end
        state[source] = :done
        nil
      end
      @sources.each { |source| (found = walk.(source, [])) && (return found) }
      nil
    end

    private

    def find(from, relative)
      path = File.expand_path(relative, "/#{File.dirname(from.path)}").delete_prefix("/")
      @sources.find { |source| source.path == path } or raise "#{from.path} requires #{relative}, which is not there"
    end

    # @return [Array<Source>] the files that define the constant, as Ruby finds it from that nesting
    def homes(nesting, name)
      nesting.size.downto(1) do |depth|
        name.size.downto(1) do |length|
          found = @homes.fetch(nesting.first(depth) + name.first(length), nil)
          return found if found && length == name.size
          return found if found && found.size == 1
        end
      end
      []
    end
  end

  TREE = Tree.new(Dir[File.join(LIB, "**/*.rb")].to_h { |path| [path.delete_prefix("#{LIB}/").delete_suffix(".rb"), File.read(path)] })

  def refused(tree) = tree.edges.reject { |edge| edge.from.part == edge.to.part || LAYERS.fetch(edge.from.part).include?(edge.to.part) }

  def test_rooms_refer_only_to_rooms_below_them
    assert_equal [], refused(TREE).map { |edge| "lib/#{edge.from.path}.rb refers to #{edge.to.path} by #{edge.by}" }
    assert_operator TREE.edges.size, :>, 100, "is this test blind?"
  end

  def test_the_list_of_layers_is_sorted
    LAYERS.each_with_index do |(part, below), layer|
      assert_equal [], below - LAYERS.keys.first(layer), "below #{part}"
    end
    assert_equal TREE.sources.map(&:part).uniq.sort, LAYERS.keys.sort
    used = TREE.edges.map { |edge| [edge.from.part, edge.to.part] }.uniq
    idle = LAYERS.flat_map { |part, below| below.map { |lower| [part, lower] } } - used
    assert_equal [], idle, "permissions that nothing needs"
  end

  FOLDERS = { "core" => "src", "scheduler" => "ext/scheduler/src", "extension" => "ext/reactor/src", "lib" => "lib/reactor" }.freeze

  # Everything in the picture exists: each part is a file or a folder.
  def test_each_room_is_there
    FOLDERS.each do |file, folder|
      Layering.read(file).each do |part|
        places = ["", ".rs", ".rb"].flat_map { |ending| [File.join(ROOT, folder, part.name + ending), File.join(LIB, part.name + ending)] }
        assert places.any? { |place| File.exist?(place) }, "#{folder}/#{part.name}"
      end
    end
  end

  def test_the_picture_is_drawn_from_the_layers
    assert_equal Layering::Drawing.new.to_s, File.read(File.join(ROOT, "docs/architecture.svg")), "rake docs:architecture"
  end

  def test_files_have_no_circle
    assert_nil TREE.circle
  end

  def test_every_file_has_at_most_400_lines
    long = Dir[File.join(LIB, "**/*.rb")].to_h { |path| [path, File.foreach(path).count] }.select { |_, lines| lines > MAX_LINES }
    assert_empty long
  end

  # Three small trees break one rule each.
  def test_broken_rules_are_detected
    up = Tree.new("reactor/clock" => "module Reactor; module Clock; def self.x = Scheduler; end; end",
                  "reactor/scheduler" => "module Reactor; class Scheduler; end; end")
    assert_equal(%w[Scheduler], refused(up).map(&:by))
    required = Tree.new("reactor/clock" => "require_relative \"socket_arguments\"", "reactor/socket_arguments" => "")
    assert_equal(["require_relative \"socket_arguments\""], refused(required).map(&:by))
    round = Tree.new("reactor/native/a" => "module Reactor; module A; X = Reactor::B::Y; end; end",
                     "reactor/native/b" => "module Reactor; module B; Y = 1; def self.z = A::X; end; end")
    assert_equal %w[reactor/native/a reactor/native/b], round.circle
  end
end

# frozen_string_literal: true

require_relative "helper"
require "open3"
require "prism"
require "tmpdir"
require "reactor/rack"
require "reactor/testing"
require "reactor/observe/snapshot_server"
require "reactor/async/selector" if defined?(Reactor::Poller)

# sig/reactor.rbs is valid and has a signature of every public method. Skipped without the rbs gem.
class TestTypes < ReactorTest
  RBS_THERE = begin
    # Warnings of the rbs gem are suppressed.
    verbose, $VERBOSE = $VERBOSE, nil
    require "rbs"
    true
  rescue LoadError => error
    error.message.lines.first.strip
  ensure
    $VERBOSE = verbose
  end

  def setup
    super
    skip "the rbs gem cannot be loaded: #{RBS_THERE}" unless RBS_THERE == true
  end

  def self.builder
    @builder ||= begin
      loader = RBS::EnvironmentLoader.new
      %w[socket timeout].each { |library| loader.add(library: library) } # as sig/manifest.yaml says
      loader.add(path: Pathname(File.join(ROOT, "sig")))
      RBS::DefinitionBuilder.new(env: RBS::Environment.from_loader(loader).resolve_type_names)
    end
  end

  def builder = self.class.builder

  def type(name)
    *outer, last = name.delete_prefix("::").split("::")
    RBS::TypeName.new(name: last.to_sym, namespace: RBS::Namespace.new(path: outer.map(&:to_sym), absolute: true))
  end

  def validate(directory)
    script = 'require "rbs"; require "rbs/cli"; exit(RBS::CLI.new(stdout: $stdout, stderr: $stdout).run(["-r", "socket", "-r", "timeout", "-I", ARGV[0], "validate"]).then { |code| [nil, true, 0].include?(code) })'
    out, status = Open3.capture2e(RbConfig.ruby, "-W0", "-e", script, directory)
    [status.success? && !out.match?(/ERROR/), out]
  end

  def test_the_signatures_are_valid
    valid, said = validate(File.join(ROOT, "sig"))
    assert valid, said.lines.grep_v(/\AValidating/).join
  end

  # The validation detects an error.
  def test_a_signature_that_names_an_unknown_type_is_invalid
    Dir.mktmpdir do |directory|
      text = File.read(File.join(ROOT, "sig/reactor.rbs"))
      File.write(File.join(directory, "reactor.rbs"), text.sub("def self.backend: () -> Symbol", "def self.backend: () -> Nonsense"))
      refute validate(directory).first
    end
  end

  # In these classes, every method is public unless its documentation marks it as private.
  CLASSES = [
    Reactor::Scheduler, Reactor::NativeScheduler, Reactor::FiberStatus, Reactor::Health,
    Reactor::Health::Reader, Reactor::Histogram, Reactor::SnapshotServer, Reactor::Server, Reactor::Stall, Reactor::Testing::Clock,
    Reactor::Group, Reactor::Group::Task, Reactor::Cancelled, Reactor::Deadline, Reactor::Watcher, (Reactor::AsyncSelector if defined?(Reactor::AsyncSelector))
  ].compact.freeze
  MODULES = [Reactor, Reactor::Testing].freeze

  # Methods of Object and Data need no signature, nor does what `raise` calls.
  INHERITED = [*Object.instance_methods, *Data.instance_methods, *Data.define(:x).singleton_methods, :exception].freeze

  # The native methods that the reference documents and does not mark as private.
  NATIVE = File.read(File.join(LIB, "reactor/native/scheduler.rb")).scan(/^  # @!(?:method|attribute \[r\]) ([\w?]+)(.*?)(?=^  # @!|^  class )/m)
               .reject { |_, text| text.include?("@api private") }.map { |name, _| name.to_sym }.freeze

  # The lines of lib/ where a method begins that is marked as private by its documentation or its module's.
  PRIVATE_PLACES = Dir[File.join(LIB, "**/*.rb")].flat_map do |path|
    parsed = Prism.parse_file(path)
    comments = parsed.comments.to_h { |comment| [comment.location.start_line, comment.location.slice] }
    marked = lambda do |line|
      line -= 1
      line -= 1 while comments[line] && !comments[line].include?("@api private")
      comments.key?(line)
    end
    walk = lambda do |node, hidden|
      line = node.location.start_line
      case node
      when Prism::ModuleNode, Prism::ClassNode then hidden ||= marked.(line)
      when Prism::DefNode, Prism::CallNode then found = [[path, line]] if hidden || marked.(line)
      end
      [*found, *node.compact_child_nodes.flat_map { |child| walk.(child, hidden) }]
    end
    walk.(parsed.value, false)
  end.freeze

  def signed(name, singleton: false)
    (singleton ? builder.build_singleton(type(name)) : builder.build_instance(type(name))).methods
  end

  # Members of a Data have no location either.
  def documented_private?(method)
    return PRIVATE_PLACES.include?(method.source_location) if method.source_location

    !(method.owner < Data) && !NATIVE.include?(method.name)
  end

  def ours(klass)
    methods = klass.public_instance_methods.map { |name| klass.instance_method(name) }
    methods.reject { |method| INHERITED.include?(method.name) || method.owner.name.to_s !~ /\AReactor/ }
  end

  def test_every_public_method_has_a_signature
    missing = CLASSES.flat_map do |klass|
      known = signed("::#{klass.name}").keys
      ours(klass).reject { |method| known.include?(method.name) || documented_private?(method) }.map { |method| "#{klass}##{method.name}" }
    end
    missing += MODULES.flat_map do |place|
      methods = place.singleton_methods(false).map { |name| place.method(name) } - signed("::#{place}", singleton: true).keys.map { |name| place.method(name) if place.respond_to?(name) }
      methods.reject { |method| documented_private?(method) }.map { |method| "#{place}.#{method.name}" }
    end
    assert_equal [], missing
  end

  # [type, class or module, its methods with signatures, how to look one up], for everything loaded
  def signed_places
    builder.env.class_decls.keys.select { |type| type.to_s.start_with?("::Reactor") }.flat_map do |type|
      place = Object.const_get(type.to_s) if Object.const_defined?(type.to_s)
      next [] unless place

      [[type, "#{place}#", builder.build_instance(type).methods, place.method(:instance_method)],
       [type, "#{place}.", builder.build_singleton(type).methods, place.method(:method)]]
    end
  end

  def signed_here?(signature, type)
    signature.defs.any? { |each| each.defined_in == type || (each.defined_in.interface? && each.implemented_in == type) }
  end

  # @return [Boolean] whether a Ruby method takes exactly the arguments of its signature
  def fits?(method, signature)
    kinds = method.parameters.group_by(&:first).transform_values { |list| list.map(&:last) }
    return true if method.source_location.nil? || kinds.key?(:rest)

    taken = signature.method_types.map(&:type)
    keywords = taken.flat_map { |type| type.required_keywords.keys + type.optional_keywords.keys }.uniq.sort
    fewest, most = taken.map { |type| type.required_positionals.size }.min, taken.map { |type| type.required_positionals.size + type.optional_positionals.size }.max
    least = kinds.fetch(:req, []).size
    fewest >= least && most == least + kinds.fetch(:opt, []).size &&
      (kinds.key?(:keyrest) || keywords == kinds.values_at(:key, :keyreq).flatten.compact.sort)
  end

  def test_every_signature_is_that_of_a_method
    wrong = signed_places.flat_map do |type, label, signatures, find|
      signatures.filter_map do |name, signature|
        next if !signed_here?(signature, type)

        fits?(find.(name), signature) ? nil : "#{label}#{name} takes other arguments"
      rescue NameError
        "#{label}#{name} is not there"
      end
    end
    assert_equal [], wrong
    assert_operator signed_places.sum { |type, _, signatures| signatures.count { |_, each| signed_here?(each, type) } }, :>, 100, "is this test blind?"
  end

  # The signatures promise nothing that the reference marks as private.
  def test_no_signature_is_that_of_a_private_method
    wrong = CLASSES.flat_map do |klass|
      known = signed("::#{klass.name}").keys
      ours(klass).select { |method| known.include?(method.name) && documented_private?(method) }.map { |method| "#{klass}##{method.name}" }
    end
    wrong += MODULES.flat_map do |place|
      known = signed("::#{place}", singleton: true).keys & place.singleton_methods(false)
      known.select { |name| documented_private?(place.method(name)) }.map { |name| "#{place}.#{name}" }
    end
    assert_equal [], wrong
  end
end

# frozen_string_literal: true

require_relative "helper"
require "open3"
require "tmpdir"
require "reactor/testing"
require "reactor/observe/observer"
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
    skip_under_stress
    skip "the rbs gem cannot be loaded: #{RBS_THERE}" unless RBS_THERE == true
  end

  def environment
    loader = RBS::EnvironmentLoader.new
    loader.add(library: "socket") # as sig/manifest.yaml says
    loader.add(path: Pathname(File.join(ROOT, "sig")))
    RBS::Environment.from_loader(loader).resolve_type_names
  end

  def type(name)
    *outer, last = name.delete_prefix("::").split("::")
    RBS::TypeName.new(name: last.to_sym, namespace: RBS::Namespace.new(path: outer.map(&:to_sym), absolute: true))
  end

  def validate(directory)
    script = 'require "rbs"; require "rbs/cli"; exit(RBS::CLI.new(stdout: $stdout, stderr: $stdout).run(["-r", "socket", "-I", ARGV[0], "validate"]).then { |code| [nil, true, 0].include?(code) })'
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

  CLASSES = [
    Reactor::Scheduler, Reactor::Scheduler::Portable, Reactor::PortableScheduler, Reactor::FiberStatus, Reactor::Health,
    Reactor::Health::Reader, Reactor::Histogram, Reactor::Observer, Reactor::Stall, Reactor::StallDetector, Reactor::Testing::Clock,
    Reactor::Group, Reactor::Group::Task, (Reactor::Poller if defined?(Reactor::Poller)),
    (Reactor::AsyncSelector if defined?(Reactor::AsyncSelector))
  ].compact.freeze

  # Methods of Object and Data need no signature.
  INHERITED = [*Object.instance_methods, *Data.instance_methods, *Data.define(:x).singleton_methods].freeze

  def test_every_public_method_has_a_signature
    builder = RBS::DefinitionBuilder.new(env: environment)
    missing = CLASSES.flat_map do |klass|
      name = type(klass == Reactor::Scheduler && klass <= Reactor::PortableScheduler ? "::Reactor::Scheduler" : "::#{klass.name}")
      known = builder.build_instance(name).methods.keys
      ours = klass.public_instance_methods.reject { |method| INHERITED.include?(method) || klass.instance_method(method).owner.name.to_s !~ /\AReactor/ }
      (ours - known).map { |method| "#{klass}##{method}" }
    end
    known = builder.build_singleton(type("::Reactor")).methods.keys
    missing += (Reactor.singleton_methods - known).map { |method| "Reactor.#{method}" }
    known = builder.build_singleton(type("::Reactor::Testing")).methods.keys
    missing += (Reactor::Testing.singleton_methods(false) - known).map { |method| "Reactor::Testing.#{method}" }
    assert_equal [], missing
  end
end

# frozen_string_literal: true

require_relative "helper"
require "json"
require "open3"

# The table of patches is complete: exactly its methods differ before and after the patches are installed.
class TestPatches < ReactorTest
  # Code for a child: compares every method of Ruby's classes and modules before and after a block.
  SNAPSHOT = <<~'RUBY'
    require "json"
    require "securerandom"
    require "socket"
    require "timeout"
    require "fcntl"
    require "etc"
    begin
      require "io/nonblock"
    rescue LoadError
      nil
    end

    # Without the modules of this library and without singleton classes of objects.
    def places
      modules = ObjectSpace.each_object(Module).reject { |mod| mod.singleton_class? || mod.name.nil? || mod.name.match?(/\AReactor|\AJSON/) }
      modules.flat_map { |mod| [mod, mod.singleton_class] }
    end

    # [class or module, name] => the method that a call finds
    def methods_of_all
      places.each_with_object({}) do |place, found|
        own = place.ancestors.take_while { |ancestor| !ancestor.equal?(place) } << place # with prepended modules
        names = own.flat_map { |mod| mod.instance_methods(false) | mod.private_instance_methods(false) }.uniq
        names.each { |name| found[[place, name]] = place.instance_method(name) }
      end
    end

    def label(place, name) = "#{place.singleton_class? ? "#{place.attached_object}." : "#{place}#"}#{name}"

    # Each method that differs, and the module that defines it now.
    def changes(known = methods_of_all)
      yield
      after = methods_of_all
      places = known.keys.map(&:first).uniq
      changed = after.select { |key, method| places.include?(key.first) && known[key] != method }
      gone = known.keys - after.keys
      changed.map { |(place, name), method| [label(place, name), method.owner.to_s] } + gone.map { |place, name| [label(place, name), "gone"] }
    end

    # Classes loaded by the block are not patches, so they are not compared.
    def report(&block) = puts(JSON.generate(changes(&block).sort))
  RUBY

  # The rows of these moments, in the same form.
  def declared(*moments)
    rows = Reactor::Patches::TABLE.select { |patch| moments.include?(patch.moment) && patch.for_this_ruby? }
    rows.each_with_object({}) { |patch, found|
      prefix = patch.owner.singleton_class? ? "#{patch.owner.attached_object}." : "#{patch.owner}#"
      patch.methods.each { |name| found["#{prefix}#{name}"] = patch.with.to_s }
    }.sort
  end

  def changed_by(code, **options)
    lines = child_says("#{SNAPSHOT}\n#{code}", **options).lines
    lines.map { |line| JSON.parse(line) }
  end

  include Reactor::Patches

  def test_the_first_scheduler_patches_the_methods_of_the_table
    first, second = changed_by("report { Reactor::Scheduler.new.close }; report { Reactor::Scheduler.new.close }")
    assert_equal declared(CLOSE, SCHEDULER), first
    assert_equal [], second
    assert_includes first, ["IO#close", "Reactor::Patches::IOClose"]
    assert_operator first.size, :>, 25
  end

  PATCHED_TIMEOUT = ["Timeout#timeout", "Timeout.timeout"].freeze

  # Libraries of both kinds, regardless of this Ruby's own.
  LIBRARIES = {
    "Timeout::Error" => "Fiber.current_scheduler.timeout_after(seconds, Timeout::Error, message, &block)",
    "an exception of its own" => "Timeout::Error.handle_timeout(message) { |own| Fiber.current_scheduler.timeout_after(seconds, own, message, &block) }",
    "nothing" => "raise Timeout::Error"
  }.freeze

  def test_no_version_number_decides_whether_timeout_is_patched
    patched = LIBRARIES.transform_values do |call|
      found, = changed_by(<<~RUBY)
        Timeout.singleton_class.remove_method(:timeout)
        Timeout.singleton_class.define_method(:timeout) { |seconds, error = nil, message = "late", &block| #{call} }
        report { Reactor::Scheduler.new.close }
      RUBY
      found.map(&:first).grep(/\ATimeout/)
    end
    assert_equal({ "Timeout::Error" => PATCHED_TIMEOUT, "an exception of its own" => [], "nothing" => [] }, patched)
  end

  def test_virtual_time_patches_the_methods_of_the_table
    found, = changed_by(<<~RUBY)
      require "reactor/testing"
      Reactor::Scheduler.new.close
      report { Reactor::Testing.virtual_time { sleep 1 } }
    RUBY
    assert_equal declared(VIRTUAL_TIME), found
  end

  def test_the_async_selector_patches_io_close_before_ruby_4_0
    skip "the native library is not loaded" unless defined?(Reactor::Poller)
    found, = changed_by(<<~RUBY)
      require "reactor/async/selector"
      report { Reactor::AsyncSelector.new(Fiber.current).close }
    RUBY
    assert_equal RUBY_VERSION < "4.0" ? declared(CLOSE) : [], found
  end

  def test_a_program_without_a_scheduler_has_nothing_patched
    out, status = Open3.capture2e({ "REACTOR_BACKEND" => BACKEND.to_s }, RbConfig.ruby, "-w", "-I", LIB, "-e", <<~RUBY)
      #{SNAPSHOT}
      report { require "reactor/testing"; Reactor.backends }
    RUBY
    assert_predicate status, :success?, out
    assert_equal "[]\n", out
  end

  def test_an_undeclared_patch_is_found
    found, = changed_by(<<~RUBY)
      Fast = Module.new { def fsync = super }
      report do
        File.prepend(Fast)
        class IO; def undeclared = 1; end
        String.prepend(Module.new { def upcase = super })
        Dir.singleton_class.prepend(Module.new { def pwd = super })
      end
    RUBY
    assert_equal %w[Dir.pwd File#fsync IO#undeclared String#upcase], found.map(&:first)
  end

  def test_the_guide_has_every_patch
    documented = File.read(File.join(ROOT, "docs/patches.md")).scan(/^\| (`[^|]*`) \| (.*?) \| (.*?) \|/).map do |methods, moment, rubies|
      first, *rest = methods.scan(/(?<=`)[^`, ]+(?=`)/)
      place, name = first.match(/(.*[.#])(.*)/).captures
      [place, [name, *rest.map { |other| other[1..] }].sort, moment[/\A[^,]*/], rubies]
    end
    table = TABLE.map { |patch| described(patch) }
    assert_equal [[], []], [table - documented, documented - table]
  end

  CONDITIONS = {
    nil => "all", Reactor::Patches::SocketConnect => "all on Windows", Reactor::Patches::IOWrite => "all on Windows",
    Reactor::Patches::SocketShutdown => "all on Windows", Reactor::Patches::SocketMode => "all but on Windows",
    Reactor::Patches::TimeoutException => "those with a timeout library that hands `Timeout::Error` to a scheduler"
  }.freeze

  def described(patch)
    new = patch.methods == [:initialize]
    place = new ? "#{patch.owner}." : patch.owner.singleton_class? ? "#{patch.owner.attached_object}." : "#{patch.owner}#"
    moment = patch.moment.equal?(VIRTUAL_TIME) ? "first `virtual_time`" : "first scheduler"
    rubies = patch.before ? "before #{patch.before}" : CONDITIONS.fetch(patch.condition)
    [place, new ? ["new"] : patch.methods.map(&:to_s).sort, moment, rubies]
  end
end

# frozen_string_literal: true

require_relative "helper"
require_relative "cells"
require_relative "patched"
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

  # The rows of these sets, in the same form.
  def declared(*sets)
    rows = Reactor::Patches::TABLE.select { |patch| sets.include?(patch.set) && patch.for_this_ruby? }
    rows.each_with_object({}) { |patch, found|
      prefix = patch.owner.singleton_class? ? "#{patch.owner.attached_object}." : "#{patch.owner}#"
      patch.methods.each { |name| [name, patch.name_of_original(name)].each { |each| found["#{prefix}#{each}"] = patch.owner.to_s } }
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
    assert_includes first, ["IO#close", "IO"]
    assert_operator first.size, :>, 50
  end

  # Two patches of one method would take the same name for the original.
  def test_each_method_has_one_patch
    assert_equal [], TABLE.flat_map { |patch| patch.methods.map { |name| [patch.owner, name] } }.tally.reject { |_, count| count == 1 }.keys
  end

  PATCHED_TIMEOUT = ["Timeout#reactor_timeout_timeout", "Timeout#timeout", "Timeout.reactor_timeout_timeout", "Timeout.timeout"].freeze

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

  # In virtual time these ask no clock of Ruby's, so what a program has made of the method before has no effect there; and
  # without the first one there is no virtual time.
  OF_THE_CLOCK = /\A(Process\.clock_gettime|Time\.(now|new))\|/
  NO_CLOCK = /\AProcess\.clock_gettime\|(remove_method|undef_method|def)\|/

  # A patched method can be wrapped, stubbed, removed and replaced, before it is patched and after, as any method of Ruby's.
  def test_a_program_may_change_each_patched_method
    needs_fork
    cells = Patched.methods.keys.product(Patched::WAYS.keys, %w[before after]).map { |cell| cell.join("|") }.grep_v(NO_CLOCK)
    cells = cells.grep(/#{ENV["REACTOR_CELL"]}/)
    got = Cells.run(self, "patched", cells)
    wrong = cells.filter_map do |cell|
      plain = got[cell.sub(/after\z/, "before")]&.value&.fetch("plain")
      found = got[cell].value&.values_at("thread", "fiber")
      found[1] = plain&.last if found && OF_THE_CLOCK.match?(cell)
      "#{cell}: #{got[cell]}, not #{plain}" unless plain && got[cell].err.empty? && found == [plain, plain.last]
    end
    assert wrong.empty?, -> { "#{wrong.size} of #{cells.size} cells:\n#{wrong.join("\n")}\n" }
  end

  # Its arguments are the program's: nothing is opened for it.
  def test_a_copy_stream_that_was_replaced_before_is_called_instead
    said = run_child(<<~RUBY)
      def IO.copy_stream(*arguments) = p(arguments)
      Reactor.run { IO.copy_stream("/no/source", "/no/target") }
    RUBY
    assert_equal %(["/no/source", "/no/target"]\n), said.out
  end

  # Counts the conversions of an object.
  class Asked
    attr_reader :times

    def initialize(**conversions)
      @times = Hash.new(0)
      conversions.each { |name, value| define_singleton_method(name) { @times[name] += 1; value } }
    end
  end

  # Each is given a block that makes an argument.
  ARGUMENTS = {
    "File.new" => ->(asked) { File.new(asked[to_path: File::NULL]).close },
    "File.new, a descriptor" => ->(asked) { from, = IO.pipe; File.new(asked[to_int: from.fileno, to_path: "none"], autoclose: false).path },
    "File.open, mode" => ->(asked) { File.open(asked[to_path: File::NULL], asked[to_str: "r"], &:path) },
    "File.open, too many" => ->(asked) { File.open(asked[to_path: File::NULL], "r", 0, 0) },
    "File.open, no String" => ->(asked) { File.open(asked[to_path: 1]) },
    "copy_stream, paths" => ->(asked) { IO.copy_stream(asked[to_path: "/proc/self/limits"], asked[to_path: File::NULL], 10) },
    "copy_stream, a missing file" => ->(asked) { IO.copy_stream(asked[to_path: "/none"], asked[to_path: File::NULL]) },
    "copy_stream, lengths" => ->(asked) { IO.copy_stream("/proc/self/limits", File::NULL, asked[to_int: 10], asked[to_int: 0]) },
    "copy_stream, IOs" => ->(asked) { IO.copy_stream(asked[to_path: "none", to_io: File.open(__FILE__)], asked[to_path: "none", to_io: File.open(File::NULL, "w")], 10) },
    "IO.select" => ->(asked) { from, to = IO.pipe; to << "x"; IO.select([asked[to_io: from], from], [asked[to_io: to]], nil, 600).map(&:size) },
    "IO.select, again" => ->(asked) { from, to = IO.pipe; go = Thread.new { Thread.pass; to << "x" }; IO.select([asked[to_io: from]]).map(&:size).tap { go.join } },
    "reopen, an IO" => ->(asked) { from, = IO.pipe; from.reopen(asked[to_io: File.open(__FILE__)]).getc },
    "reopen, a path" => ->(asked) { from, = IO.pipe; from.reopen(asked[to_path: __FILE__]).getc },
    "reopen, a mode" => ->(asked) { from, = IO.pipe; from.reopen(asked[to_path: __FILE__], asked[to_str: "r"]).getc },
    "flock" => ->(asked) { File.open(__FILE__) { |file| file.flock(asked[to_int: File::LOCK_SH]) } },
    "pwrite" => ->(asked) { File.open(File::NULL, "w") { |file| file.pwrite(asked[to_s: "x"], asked[to_int: 0]) } },
    "Addrinfo.getaddrinfo" => ->(asked) { Addrinfo.getaddrinfo(asked[to_str: "127.0.0.1"], asked[to_str: "80"], nil, :STREAM).size },
    "Addrinfo.tcp" => ->(asked) { Addrinfo.tcp(asked[to_str: "127.0.0.1"], asked[to_str: "80"]).ip_port },
    "Socket.getaddrinfo" => ->(asked) { Socket.getaddrinfo(asked[to_str: "127.0.0.1"], asked[to_str: "80"], nil, :STREAM, nil, nil, false).size },
    "Socket.sockaddr_in" => ->(asked) { Socket.sockaddr_in(asked[to_str: "80"], asked[to_str: "127.0.0.1"]).size },
    "IPSocket.getaddress" => ->(asked) { IPSocket.getaddress(asked[to_str: "127.0.0.1"]) },
    "UDPSocket#connect" => ->(asked) { UDPSocket.new.connect(asked[to_str: "127.0.0.1"], asked[to_str: "9"]) },
    "UDPSocket#send" => ->(asked) { UDPSocket.new.send(asked[to_str: "x"], 0, asked[to_str: "127.0.0.1"], asked[to_str: "9"]) },
    "TCPServer.new" => ->(asked) { TCPServer.new(asked[to_str: "127.0.0.1"], asked[to_str: "0"]).close }
  }.freeze

  # A program may count, or answer differently the second time.
  def test_each_argument_is_converted_as_often_as_by_ruby
    needs_linux "/proc"
    wrong = ARGUMENTS.filter_map do |name, use|
      plain, fiber = [false, true].map do |fibers|
        objects = []
        call = -> { told { use.call(->(**conversions) { Asked.new(**conversions).tap { |object| objects << object } }) } }
        found = run_plain { fibers ? Reactor.run(&call) : call.call }
        [found, objects.map(&:times)]
      end
      "#{name}: #{fiber}, not #{plain}" unless fiber == plain
    end
    GC.start # closes what the calls have left
    assert_equal [], wrong
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
    moment = patch.set.equal?(VIRTUAL_TIME) ? "first `virtual_time`" : "first scheduler"
    rubies = patch.before ? "before #{patch.before}" : CONDITIONS.fetch(patch.condition)
    [place, new ? ["new"] : patch.methods.map(&:to_s).sort, moment, rubies]
  end
end

# frozen_string_literal: true

require_relative "helper"
require "fileutils"
require "open3"
require "shellwords"
require "tmpdir"

# Selection of the backend, and the reasons why a backend is unavailable.
class TestBackends < ReactorTest
  def test_backends_maps_each_name_to_true_or_a_reason
    backends = Reactor.backends
    assert_instance_of Hash, backends
    assert_equal %i[epoll kqueue iocp uring poll], backends.keys
    backends.each do |name, answer|
      assert_instance_of Symbol, name
      next if answer == true

      assert_instance_of String, answer
      refute_empty answer
    end
    assert_equal windows? ? String : TrueClass, backends[:poll].class
  end

  def test_a_backend_of_another_system_is_known_everywhere
    assert_match(/backend (iocp|epoll) is not available/, %i[iocp epoll].map { |name| told { Reactor::Scheduler.new(backend: name).close } }.join)
  end

  def test_the_backends_page_names_no_backend_that_is_not_listed
    named = File.read(File.join(ROOT, "docs", "backends.md"))[/^\| backend \| where .*?\n\n/m].scan(/^\| `(\w+)` /).flatten.map(&:to_sym)
    assert_equal %i[epoll uring kqueue iocp poll], named
    assert_equal [], named - Reactor.backends.keys
  end

  def test_epoll_is_the_default_on_linux
    needs_linux "epoll"
    assert_equal ":epoll\n:epoll\n", child_says("p Reactor.backend, Reactor::Scheduler.new.backend", env: { "REACTOR_BACKEND" => nil })
  end

  def test_reactor_backend_in_the_environment_selects_the_backend
    Reactor.backends.each do |name, answer|
      next unless answer == true

      assert_equal ":#{name}\n:#{name}\n", child_says("p Reactor.backend, Reactor::Scheduler.new.backend", env: { "REACTOR_BACKEND" => name.to_s })
    end
  end

  def test_every_usable_backend_can_be_requested_by_name
    Reactor.backends.each do |name, answer|
      next unless answer == true

      [name, name.to_s].each do |given|
        log = []
        run_scheduler(given) do |scheduler|
          assert_equal name, scheduler.backend
          r, w = IO.pipe
          Fiber.schedule { log << r.readpartial(9); [r, w].each(&:close) }
          Fiber.schedule { sleep 0.001; w << "bytes" }
        end
        assert_equal ["bytes"], log
      end
    end
  end

  def test_an_unavailable_backend_is_an_argument_error_with_the_reason
    Reactor.backends.reject { |_, answer| answer == true }.each do |name, reason|
      assert_includes assert_raises(ArgumentError) { Reactor::Scheduler.new(backend: name) }.message, reason
    end
    [:nonsense, "nonsense", "", :auto].each do |name|
      assert_includes assert_raises(ArgumentError) { Reactor::Scheduler.new(backend: name) }.message, name.to_s
    end
    [1, Object.new, []].each { |bad| assert_raises(TypeError, ArgumentError) { Reactor::Scheduler.new(backend: bad) } }
    assert_equal "unknown backend \"select\" (known: epoll, kqueue, iocp, uring, poll)\n",
                 child_says("Reactor::Scheduler.new rescue puts $!.message", env: { "REACTOR_BACKEND" => "select" })
  end

  # As with IO.pipe: the kernel's error is raised, and the next request tries again.
  def test_a_shortage_of_descriptors_is_errno_emfile_and_does_not_refuse_io_uring_for_good
    skip "no io_uring here" unless Reactor.backends[:uring] == true
    out = child_says(<<~'RUBY', env: { "REACTOR_BACKEND" => nil })
      Process.setrlimit(:NOFILE, 200)
      files = []
      plain = loop { files << File.open(IO::NULL) } rescue $!.class
      ours = Reactor::Scheduler.new(backend: :uring) rescue $!.class
      files.each(&:close)
      p plain, ours == plain, Reactor::Scheduler.new(backend: :uring).backend
    RUBY
    assert_equal "Errno::EMFILE\ntrue\n:uring\n", out
  end

  # The kernel counts the memory of rings, except for root. With the first limit none can be opened, with the second one only a few.
  def test_the_limit_that_refuses_io_uring_its_memory_is_named
    skip "no io_uring here" unless Reactor.backends[:uring] == true
    none, few = [0, 256 << 10].map do |limit|
      child_says(<<~RUBY, env: { "REACTOR_BACKEND" => nil }).lines(chomp: true)
        Process::Sys.setuid(65_534) if Process.uid.zero?
        Process.setrlimit(:MEMLOCK, #{limit})
        puts Reactor.backends[:uring]
        schedulers = []
        begin
          64.times { schedulers << Reactor::Scheduler.new(backend: :uring) }
        rescue SystemCallError
          puts $!.message
        end
        puts Reactor.backend, schedulers.empty?
      RUBY
    end
    skip "this kernel does not count the memory of rings" if none.first == "true"
    message = "Cannot allocate memory - io_uring_setup, which RLIMIT_MEMLOCK limits"
    assert_equal [[message, message, "epoll", "true"], ["true", message, "epoll", "false"]], [none, few]
  end

  # The library of a clone is built by rake, that of an installed gem by RubyGems.
  def test_without_the_native_library_require_is_a_load_error_with_the_command_that_builds_it
    abi = RUBY_VERSION[/\A\d+\.\d+/]
    Dir.mktmpdir do |folder|
      dir = FileUtils.mkdir_p(File.join(folder, "a clone")).first
      FileUtils.cp_r(LIB, dir)
      Dir[File.join(dir, "lib/reactor/**/reactor.*")].each { |file| File.delete(file) }
      message = lambda do
        code = "begin; require 'reactor'; rescue LoadError; puts $!.message; print $!.cause; end"
        out, status = Open3.capture2e({ "REACTOR_BACKEND" => nil }, RbConfig.ruby, "-w", "-I", File.join(dir, "lib"), "-e", code)
        assert_predicate status, :success?, out
        out.lines(chomp: true)
      end
      first, advice, command, *rest = message.()
      assert_match(/\Athe native library of reactor is not built for Ruby #{Regexp.escape(RUBY_VERSION)} /, first)
      assert_equal ["Build it:", "  #{RbConfig.ruby} -S gem pristine reactor-loop", []], [advice, command, rest]
      FileUtils.touch(File.join(dir, "Rakefile"))
      build = "cd #{dir.shellescape} && rm -f lib/reactor/#{abi}/reactor.* && RUBY=#{RbConfig.ruby} bin/setup && #{RbConfig.ruby} -S rake compile"
      assert_equal "  #{build}", message.()[2]
      folder = FileUtils.mkdir_p(File.join(dir, "lib/reactor", abi)).first
      File.write(File.join(folder, "reactor.#{RbConfig::CONFIG["DLEXT"]}"), "no library")
      first, advice, command, *rest = message.()
      assert_match(/\Athe native library of reactor does not load on Ruby #{Regexp.escape(RUBY_VERSION)}: .*reactor/, first)
      assert_equal ["Build it again, for this Ruby:", "  #{build}", []], [advice, command, rest]
    end
  end
end

# frozen_string_literal: true

require_relative "helper"
require "fileutils"
require "open3"
require "tmpdir"

# Selection of the backend, and the reasons why a backend is unavailable.
class TestBackends < ReactorTest
  def test_backends_maps_each_name_to_true_or_a_reason
    backends = Reactor.backends
    assert_instance_of Hash, backends
    assert_includes backends.keys, :select
    backends.each do |name, answer|
      assert_instance_of Symbol, name
      next if answer == true

      assert_instance_of String, answer
      refute_empty answer
    end
    assert_equal true, backends[:select]
  end

  # This works even where the native library is not loaded.
  def test_a_backend_of_another_system_is_known_everywhere
    assert_match(/backend (iocp|epoll) is not available/, %i[iocp epoll].map { |name| told { Reactor::Scheduler.new(backend: name).close } }.join)
    assert_equal %i[epoll kqueue iocp uring select], Reactor.backends.keys
  end

  def test_the_backends_page_names_no_backend_that_is_not_listed
    skip "the native library is not loaded" unless defined?(Reactor::Poller)
    named = File.read(File.join(ROOT, "docs", "backends.md"))[/^\| backend \| where .*?\n\n/m].scan(/^\| `(\w+)` /).flatten.map(&:to_sym)
    assert_equal %i[epoll uring kqueue iocp select], named
    assert_equal [], named - Reactor.backends.keys
  end

  def test_epoll_is_the_default_on_linux
    needs_linux "epoll"
    assert_equal ":epoll\n:epoll\n", child_says("p Reactor.backend, Reactor::Scheduler.new.backend", env: { "REACTOR_BACKEND" => nil })
  end

  def test_reactor_backend_in_the_environment_selects_the_backend
    out = child_says("p Reactor.backend, Reactor::Scheduler.new.backend", env: { "REACTOR_BACKEND" => "select" })
    assert_equal ":select\n:select\n", out
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

  def test_the_select_backend_is_the_portable_scheduler
    scheduler = Reactor::Scheduler.new(backend: :select)
    assert_kind_of Reactor::PortableScheduler, scheduler
    assert_equal :select, scheduler.backend
    assert_instance_of Reactor::Scheduler::Portable, scheduler unless select_backend?
    assert_kind_of Reactor::Scheduler, scheduler
    assert_operator Reactor::Scheduler, :===, scheduler
    refute_operator Class.new(Reactor::Scheduler), :===, scheduler
    scheduler.close
  end

  def test_an_unavailable_backend_is_an_argument_error_with_the_reason
    Reactor.backends.reject { |_, answer| answer == true }.each do |name, reason|
      assert_includes assert_raises(ArgumentError) { Reactor::Scheduler.new(backend: name) }.message, reason
    end
    [:nonsense, "nonsense", "", :auto].each do |name|
      assert_includes assert_raises(ArgumentError) { Reactor::Scheduler.new(backend: name) }.message, name.to_s
    end
    [1, Object.new, []].each { |bad| assert_raises(TypeError, ArgumentError) { Reactor::Scheduler.new(backend: bad) } }
    assert_match(/nonsense/, child_says("Reactor::Scheduler.new rescue puts $!.message", env: { "REACTOR_BACKEND" => "nonsense" }))
    skip "the portable scheduler is the only one here" if select_backend?
    assert_match(/REACTOR_BACKEND=select/, assert_raises(ArgumentError) { Class.new(Reactor::Scheduler).new(backend: :select) }.message)
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

  def test_an_absent_native_library_falls_back_with_a_warning_and_a_broken_one_is_a_load_error
    Dir.mktmpdir do |dir|
      FileUtils.cp_r(File.join(LIB, "."), dir)
      Dir[File.join(dir, "reactor/*/reactor.*")].each { |file| File.delete(file) }
      abi = RUBY_VERSION[/\A\d+\.\d+/]
      FileUtils.mkdir_p(File.join(dir, "reactor", abi))
      run = lambda do |backend = nil|
        command = [RbConfig.ruby, "-w", "-W:no-experimental", "-I", dir, "-e", <<~'RUBY']
          require "reactor"
          ractor = Ractor.new { Reactor::Scheduler.new.backend } # other Ractors can read the reason
          p Reactor.backend, ractor.respond_to?(:value) ? ractor.value : ractor.take
        RUBY
        out, status = Open3.capture2e({ "REACTOR_BACKEND" => backend }, *command)
        [out, status.success?]
      end
      warning, advice, *answers = run.().first.lines
      assert_match(/\Areactor: the native library is not built for Ruby #{Regexp.escape(RUBY_VERSION)} .*, so the scheduler in plain Ruby is used\.$/, warning)
      assert_match(/\ABuild it .*REACTOR_BACKEND=select\.$/, advice)
      assert_equal %W[:select\n :select\n], answers
      assert_equal [":select\n:select\n", true], run.("select"), "it was asked for, so nothing is said"
      File.write(File.join(dir, "reactor", abi, "reactor.#{RbConfig::CONFIG["DLEXT"]}"), "no library")
      out, success = run.()
      refute success, out
      assert_match(/LoadError/, out)
    end
  end
end

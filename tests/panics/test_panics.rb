# frozen_string_literal: true

require_relative "../ruby/helper"

# A panic of the extension's Rust code: what Ruby sees of it at each place where C calls Rust. bin/check panics builds the extension
# with the feature that forces one, and runs this.
class TestPanics < ReactorTest
  # A fiber that has an ensure block waits, and another one makes the call.
  CODE = <<~'RUBY'
    $stdout.sync = true
    def panic_at(point)
      Reactor::Internal.force_panic(point)
      value = yield
      puts "nothing came to #{point}" if Reactor::Internal.force_panic(nil)
      value
    end
    Fiber.set_scheduler(scheduler = Reactor::Scheduler.new)
    r, w = IO.pipe
    Fiber.schedule do
      r.wait_readable
      puts "read"
    ensure
      puts "ensure"
    end
  RUBY

  def setup
    super
    skip "built without the feature forced-panics: see bin/check panics" unless Reactor::Internal.respond_to?(:force_panic)
  end

  def child(code)
    folders = $LOAD_PATH.first(2).flat_map { |folder| ["-I", folder] }
    command = ["timeout", TEST_TIMEOUT.to_s, RbConfig.ruby, *folders, "-r", File.join(ROOT, "tests/inside"), "-e", CODE + code]
    out = IO.popen({ "REACTOR_BACKEND" => BACKEND.to_s }, [*command, err: %i[child out]], &:read)
    [out.lines(chomp: true), $?]
  end

  # Ruby raises fatal, which no rescue catches: the ensure blocks run, and the thread ends with that error.
  def assert_fatal(point, code)
    lines, status = child(code)
    assert_equal 1, status.exitstatus, lines.join("\n")
    assert_includes lines, "ensure"
    refute_includes lines, "read"
    assert lines.any? { |line| line.end_with?("forced at #{point} (fatal)") }, lines.join("\n")
  end

  # The loop goes on.
  def assert_goes_on(code)
    lines, status = child("#{code}\nw << 'x'\nscheduler.run")
    assert_equal 0, status.exitstatus, lines.join("\n")
    assert_equal %w[read ensure], lines.last(2)
    assert lines.any? { |line| line.start_with?("forced at") }, lines.join("\n")
    refute lines.any? { |line| line.start_with?("nothing came") }, lines.join("\n")
    lines
  end

  def test_a_panic_in_a_hook_is_fatal
    assert_fatal "method", 'Fiber.schedule { panic_at("method") { scheduler.io_wait(r, IO::READABLE, 0) } }; scheduler.run'
  end

  def test_a_panic_while_the_loop_sleeps_is_fatal
    assert_fatal "call", 'Fiber.schedule { panic_at("call") { sleep 0.01 } }; scheduler.run'
  end

  def test_a_panic_in_a_call_without_the_gvl_is_fatal
    assert_fatal "call", <<~'RUBY'
      Thread.report_on_exception = false
      Fiber.schedule { panic_at("call") { Thread.new { Reactor::Internal.await_child(Process.spawn("true"), 0) }.value } }
      scheduler.run
    RUBY
  end

  def test_a_panic_in_the_function_that_interrupts_the_sleep_changes_nothing
    lines = assert_goes_on(<<~'RUBY')
      loop_thread = Thread.current
      Thread.new { Thread.pass until loop_thread.stop?; loop_thread.wakeup; puts "woken"; w.syswrite("x") }
      panic_at("interrupt of the sleep") { scheduler.run }
    RUBY
    assert_includes lines, "woken"
  end

  def test_a_panic_in_a_function_of_the_module_is_fatal
    assert_fatal "function", 'Fiber.schedule { panic_at("function") { nil } }; scheduler.run'
  end

  def test_a_panic_while_the_library_is_loaded_is_fatal
    code = "begin require 'reactor'; rescue Exception => error; puts error.class, error.message; end"
    folders = $LOAD_PATH.first(2).flat_map { |folder| ["-I", folder] }
    lines = IO.popen({ "REACTOR_BACKEND" => BACKEND.to_s, "REACTOR_PANIC_IN_INIT" => "1" }, [RbConfig.ruby, *folders, "-e", "at_exit { puts 'ensure' }; #{code}", err: %i[child out]], &:readlines)
    assert_includes lines, "ensure\n"
    assert lines.any? { |line| line.include?("forced at init (fatal)") }, lines.join
  end

  # What makes objects of this kind that are dropped.
  DROPPED = {
    "end of a scheduler" => "Reactor::Scheduler.new",
    "end of a poller" => "Reactor::Poller.new",
    "end of a semaphore" => "Reactor::Semaphore.new(1)",
    "end of watcher marks" => "Reactor::Scheduler.new.on_ready(IO.pipe.first) { nil }",
    "end of a timeout" => "Fiber.new { scheduler.timeout_after(1000, IOError) { Fiber.yield } }.resume",
    "end of a lookup" => 'scheduler.lookup("127.0.0.1", nil, 0, 0, 0, 0)'
  }.freeze

  DROPPED.each do |point, code|
    define_method("test_a_panic_at_the_#{point.tr(" ", "_")}_changes_nothing") do
      assert_goes_on("panic_at(#{point.inspect}) { 20.times { #{code} }; 5.times { GC.start } }")
    end
  end
end

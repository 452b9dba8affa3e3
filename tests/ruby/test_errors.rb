# frozen_string_literal: true

require_relative "helper"
require "tempfile"

# Exceptions that leave a fiber, and ends of a thread or process from outside. The scheduler is expected to end within 50 ms, but
# these tests only distinguish an end from a hang.
class TestErrors < ReactorTest
  { the_end_of_the_thread: ->(_) {}, close: ->(scheduler) { scheduler.close } }.each do |name, finish|
    define_method("test_#{name}_raises_the_first_escaped_error_after_the_other_fibers_end") do
      log = []
      error = assert_raises(IndexError) do
        run_scheduler do |scheduler|
          first = Fiber.schedule { sleep 0.002; raise IndexError, "first" }
          Fiber.schedule { sleep 0.001 while first.alive?; raise KeyError, "second" }
          Fiber.schedule { sleep 0.01; log << :survivor }
          finish.call(scheduler)
        end
      end
      assert_equal ["first", [:survivor]], [error.message, log]
    end
  end

  def test_run_raises_an_escaped_error_and_the_scheduler_stays_usable
    log = []
    run_scheduler do |scheduler|
      Fiber.schedule { sleep 0; raise IndexError, "escaped" }
      assert_equal "escaped", assert_raises(IndexError) { scheduler.run }.message
      Fiber.schedule { sleep 0.001; log << :usable }
      scheduler.run
    end
    assert_equal [:usable], log
  end

  def test_an_error_that_is_no_standard_error_goes_to_the_thread_and_cancels_the_other_fibers
    other = Class.new(Exception) # rubocop:disable Lint/InheritException -- neither StandardError nor ScriptError
    [other, NoMemoryError, SystemExit, Interrupt].each do |error|
      log = []
      run_scheduler do |scheduler|
        Fiber.schedule { begin sleep ensure log << :ensure end }
        Fiber.schedule { sleep 0; raise error, "fatal" }
        assert_equal "fatal", assert_raises(error) { scheduler.run }.message
        log << :raised
      end
      assert_equal %i[ensure raised], log.sort
    end
  end

  def test_an_escaped_error_is_reported_if_report_on_exception_is_set
    silent, loud = %w[false true].map do |report|
      run_child(<<~RUBY, report)
        Thread.new do
          Thread.current.report_on_exception = ARGV[0] == "true"
          Fiber.set_scheduler(Reactor::Scheduler.new)
          Fiber.schedule { sleep 0; raise IndexError, "told" }
        end.join rescue puts "joined: \#{$!.message}"
      RUBY
    end
    assert_equal ["joined: told\n"] * 2, [silent.out, loud.out]
    refute_match(/#<Fiber/, silent.err)
    assert_match(/#<Fiber.*terminated with exception \(report_on_exception is true\)/, loud.err)
    assert_match(/told \(IndexError\)/, loud.err)
  end

  # The error's own methods may raise, and $stderr may be an object of the program.
  def test_a_report_that_cannot_be_written_changes_nothing
    ["", "def (broken = Object.new).write(*) = raise('broken'); $stderr = broken"].each do |before|
      child = run_child(<<~RUBY)
        #{before}
        error = Class.new(StandardError) do
          def self.name = "Odd"
          def self.to_s = name
          def message = raise("its message")
          def full_message(*) = message
        end.new
        scheduler = Reactor::Scheduler.new
        Fiber.set_scheduler(scheduler)
        read, write = IO.pipe
        write << "x"
        Fiber.schedule { sleep 0; raise error }
        scheduler.on_ready(read) { raise error }
        Fiber.schedule { sleep 0.005; puts "survivor" }
        scheduler.run rescue p($!.equal?(error))
      RUBY
      assert_equal "survivor\ntrue\n", child.out
      assert_match(before.empty? ? /terminated with exception .*\nOdd\n/ : /\A\z/, child.err)
    end
  end

  def test_an_error_of_the_thread_body_is_raised_after_the_fibers_end
    log = []
    error = assert_raises(KeyError) do
      run_scheduler do
        Fiber.schedule { sleep 0.002; log << :finished }
        raise KeyError, "of the body"
      end
    end
    assert_equal "of the body", error.message
    assert_equal [:finished], log
  end

  def test_an_interrupt_ends_a_busy_run
    child = run_child(<<~RUBY) { |pid, line| line.("ready"); Process.kill(:INT, pid) }
      Fiber.set_scheduler(Reactor::Scheduler.new)
      2.times { Fiber.schedule { begin sleep 0 while true ensure puts "ensure" end } }
      Fiber.schedule { sleep 0; puts "ready" }
      begin
        Fiber.scheduler.run
      rescue Interrupt
        puts "interrupted"
      end
    RUBY
    assert_equal 2, child.out.scan("ensure").size
    assert_includes child.out, "interrupted"
  end

  # The VM has checked for the exception before, so no mark is left on the thread, and nothing would end a sleep.
  def test_an_exception_that_is_deferred_until_the_thread_blocks_is_raised_in_the_wait
    raised = run_plain do
      thread = Thread.current
      Fiber.set_scheduler(Reactor::Scheduler.new)
      Thread.handle_interrupt(IndexError => :on_blocking) do
        Fiber.schedule { sleep 3600 }
        Thread.new { thread.raise(IndexError) }
        Thread.pass until Thread.pending_interrupt?
        Thread.pass
        Fiber.scheduler.run
      rescue IndexError
        :in_the_wait
      end
    ensure
      Fiber.scheduler.cancel
    end
    assert_equal :in_the_wait, raised
  end

  # If the error came while the scheduler sleeps, it would end the run, and the other fiber would never get there.
  def test_thread_raise_while_a_fiber_has_control_is_that_fibers_error
    log = []
    computes = Thread::Queue.new
    queue = Thread::Queue.new
    error = assert_raises(IndexError) do
      run_scheduler do |scheduler|
        thread = Thread.current
        Fiber.schedule { log << queue.pop }
        Fiber.schedule do
          sleep 0
          computes << true
          loop { Thread.pass }
        rescue IndexError
          queue << :goes_on
          raise
        end
        Thread.new { computes.pop; thread.raise(IndexError, "from outside") }
        scheduler.run
      end
    end
    assert_equal ["from outside", [:goes_on]], [error.message, log]
  end

  def test_fibers_and_watchers_that_an_ensure_starts_are_cancelled_when_the_others_have_ended
    log, rounds = [], 0
    start = lambda do |scheduler|
      Fiber.schedule do
        sleep
      ensure
        log << rounds
        start.call(scheduler) if (rounds += 1) < 4
        scheduler.on_ready(pipe.first) { log << :ready }
      end
    end
    scheduler = nil
    assert_raises(Interrupt) do
      run_scheduler do |made|
        scheduler = made
        2.times { start.call(scheduler) }
        raise Interrupt
      end
    end
    assert_equal [0, 1, 2, 3, 4], log
    assert_equal [0, []], [scheduler.live, scheduler.watchers]
  end

  def test_an_error_during_a_resumed_fibers_wait_is_raised_at_the_end
    log = []
    error = assert_raises(IndexError) do
      run_scheduler do
        Fiber.schedule { sleep 0.002; raise IndexError, "inside" }
        log << Fiber.new { sleep 0.01; :resumed }.resume
      end
    end
    assert_equal "inside", error.message
    assert_equal [:resumed], log
  end

  # Waits in which the library's own code runs.
  WAITS = {
    "IO.select" => ->(from, *) { IO.select([from]) },
    "copy_stream" => ->(_, to, _) { IO.copy_stream("/dev/zero", to, 1 << 20) },
    "copy_stream of a file" => ->(_, to, path) { IO.copy_stream(path, to) },
    "a place in a group" => ->(*) { Reactor.group(limit: 1) { |group| 2.times { group.async { sleep } } } },
    "a semaphore" => ->(*) { Reactor::Semaphore.new(1).tap(&:acquire).acquire },
    "a rate limit" => ->(*) { Reactor::RateLimit.new(1, per: 600).tap(&:acquire).acquire },
    "a deadline" => ->(*) { Reactor.deadline(600) { sleep } }
  }.freeze

  # An exception that the library's own code might take for its own.
  def test_each_wait_raises_what_is_raised_in_it
    from, to = pipe
    file = track(Tempfile.new)
    file.write("x" * 300_000)
    file.flush
    classes = [StopIteration, ClosedQueueError, ThreadError, FiberError, IOError, EOFError, Errno::EBADF, Errno::ECHILD, Errno::EAGAIN,
               TypeError, ArgumentError, NotImplementedError, KeyError]
    wrong = []
    WAITS.to_a.product(classes) do |(name, wait), error|
      found = :nothing
      run_scheduler do
        fiber = Fiber.schedule do
          found = wait.call(from, to, file.path)
        rescue Exception => found # rubocop:disable Lint/RescueException -- compared
          nil
        end
        fiber.raise(error, "late") if fiber.alive?
      end
      wrong << "#{name}: #{found.inspect}, not #{error}" unless found.instance_of?(error)
    end
    assert_equal [], wrong
  end

  # Methods of the extension that yield.
  YIELDING = {
    "a time limit" => ->(block) { Timeout.timeout(TEST_TIMEOUT, &block) },
    "a deadline" => ->(block) { Reactor.deadline(TEST_TIMEOUT, &block) },
    "a permit" => ->(block) { Reactor::Semaphore.new(1).acquire(&block) },
    "a permit that need not be waited for" => ->(block) { Reactor::Semaphore.new(1).try_acquire(&block) }
  }.freeze

  # An exception that is raised anew is reported twice, and the VM makes Strings of its backtrace.
  def test_what_a_block_raises_is_raised_once
    deeper = ->(frames, block) { frames.zero? ? block.call : deeper.call(frames - 1, block) }
    failing = proc { raise "in the block" }
    in_fiber do
      YIELDING.each do |name, method|
        reports = []
        trace = TracePoint.new(:raise) { |point| reports << point.raised_exception.message }
        raised = trace.enable(target_thread: Thread.current) { assert_raises(RuntimeError) { method.call(failing) } }
        assert_equal ["in the block"], reports, name
        assert_equal failing.source_location[1], raised.backtrace_locations.first.lineno, name
        objects = [1, 1, 100].map do |frames|
          deeper.call(frames, lambda do
            before = GC.stat(:total_allocated_objects)
            begin method.call(failing); rescue RuntimeError; nil end
            GC.stat(:total_allocated_objects) - before
          end)
        end
        assert_operator objects.last - objects[1], :<, 50, name
      end
    end
  end
end

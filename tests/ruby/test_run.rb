# frozen_string_literal: true

require_relative "helper"

# Reactor.run: a block with its own scheduler, which is closed afterwards, whatever has ended the block.
class TestRun < ReactorTest
  # Runs the block on a new thread, and checks that the thread has no scheduler afterwards.
  def on_a_thread(&block)
    before = descriptors
    left = :unknown
    run_plain do
      block.call
    ensure
      left = Fiber.scheduler
    end
  ensure
    assert_nil left, "the thread has a scheduler afterwards"
    assert eventually { leaked_descriptors(before).empty? }, "descriptors left open"
  end

  def test_the_value_of_the_block_is_returned_when_all_fibers_have_ended
    log = []
    value = on_a_thread do
      Reactor.run do
        is_over = Thread::Queue.new
        Fiber.schedule { is_over.pop; Fiber.schedule { sleep 0.001; log << :grandchild } }
        log << :block
        is_over << true
        :value
      end
    end
    assert_equal [:value, %i[block grandchild]], [value, log]
  end

  def test_the_options_are_those_of_a_scheduler
    scheduler = on_a_thread { Reactor.run(backend: BACKEND, workers: 2) { Fiber.scheduler } }
    assert_equal BACKEND, scheduler.backend
    assert_raises(ArgumentError) { on_a_thread { Reactor.run(backend: :nonsense) { flunk } } }
    assert_raises(ArgumentError) { on_a_thread { Reactor.run(nonsense: 1) { flunk } } }
    assert_raises(ArgumentError) { on_a_thread { Reactor.run } }
  end

  def test_where_a_scheduler_is_set_the_block_runs_in_the_same_fiber_and_leaves_its_fibers_behind
    run_scheduler do |scheduler|
      log = []
      Fiber.schedule do
        fiber = Fiber.current
        value = Reactor.run { Fiber.schedule { sleep 0.001; log << :outlives }; [Fiber.current.equal?(fiber), Fiber.scheduler.equal?(scheduler)] }
        log << value
        assert_raises(ArgumentError) { Reactor.run(workers: 2) { flunk } }
        Reactor.run { Reactor.run { log << :nested } }
      end
      scheduler.run
      assert_equal [[true, true], :nested, :outlives], log
    end
  end

  # --- in the blocking fiber of a thread with a scheduler ------------------------------------------------------------

  WAITS = {
    queue: -> { queue = Thread::Queue.new; Fiber.schedule { sleep 0.001; queue << :value }; queue.pop },
    io: -> { IO.pipe { |reader, writer| Fiber.schedule { sleep 0.001; writer << "v" }; reader.read(1) && :value } },
    thread: -> { Thread.new { :value }.value },
    enumerator: -> { Enumerator.new { |yielder| sleep 0.001; yielder << :value }.next },
    group: -> { Reactor.group { |group| group.async { sleep 0.001; :value }.value } },
    run: -> { Reactor.run { sleep 0.001; :value } },
    lock: -> { mutex = Thread::Mutex.new; Fiber.schedule { mutex.synchronize { sleep 0.001 } }; mutex.synchronize { :value } }
  }.freeze

  WAITS.each do |name, wait|
    define_method("test_a_root_fiber_runs_a_block_that_waits_by_#{name}_while_other_fibers_run") do
      log = []
      run_scheduler do |scheduler|
        ticks = true
        Fiber.schedule { while ticks do sleep 0; end; log << :other }
        2.times { assert_equal :value, Reactor.run(&wait) }
        ticks = false
        assert_equal [scheduler, nil], [Fiber.scheduler, Fiber.current_scheduler]
        scheduler.run
      end
      assert_equal [:other], log
    end
  end

  def test_in_a_root_fiber_run_returns_when_the_block_has_and_leaves_its_fibers_to_the_scheduler
    log = []
    run_scheduler do |scheduler|
      gate = Thread::Queue.new
      value = Reactor.run { Fiber.schedule { gate.pop; log << :outlives }; sleep 0; [Fiber.current_scheduler.equal?(scheduler), log.dup] }
      assert_equal [true, []], value
      assert_raises(ArgumentError) { Reactor.run(workers: 2) { flunk } }
      gate << true
    end
    assert_equal [:outlives], log
  end

  def test_what_ends_a_block_in_a_root_fiber_is_raised_there
    run_scheduler do |scheduler|
      error = IOError.new("own")
      assert_same error, assert_raises(IOError) { Reactor.run { sleep 0.001; raise error } }
      assert_raises(Interrupt) { Reactor.run { sleep 0; raise Interrupt } }
      assert_raises(LocalJumpError) { Reactor.run { break 5 } }
      assert_raises(UncaughtThrowError) { catch(:tag) { Reactor.run { sleep 0; throw :tag } } }
      assert_raises(FiberError) { Reactor.run { Fiber.yield 5 } }
      assert_raises(Timeout::Error) { Reactor.run { Timeout.timeout(0.001) { sleep } } }
      assert_equal 5, Reactor.run { next 5 }
      ended = []
      Reactor.run do
        fiber = Fiber.current
        Fiber.schedule { sleep 0; fiber.kill }
        begin; sleep; ensure; ended << :killed; end
      end
      assert_equal [:killed], ended
      scheduler.run
    end
  end

  { kill: :kill.to_proc, raise: ->(thread) { thread.raise(IOError) } }.each do |name, finish|
    define_method("test_a_block_in_a_root_fiber_is_ended_by_thread_#{name}") do
      log = []
      made = Thread::Queue.new
      thread = Thread.new do
        Thread.current.report_on_exception = false
        Fiber.set_scheduler(scheduler = Reactor::Scheduler.new)
        Fiber.schedule { begin; sleep; ensure; sleep 0.001; log << :other; end } if name == :kill
        begin
          Reactor.run { made << scheduler; begin; sleep; ensure; sleep 0.001; log << :block; end }
        ensure
          log << :root
        end
      end
      scheduler = made.pop
      until_parked(scheduler, name == :kill ? 2 : 1)
      finish.call(thread)
      outcome { join_or_fail(thread, TEST_TIMEOUT) }
      assert_equal name == :kill ? %i[block other root] : %i[block root], log.sort
      assert_predicate scheduler, :closed?
    end
  end

  def test_a_fiber_that_is_blocking_for_a_while_runs_a_block_in_one_that_is_not
    run_scheduler do
      Fiber.schedule { assert_equal [5, nil], Fiber.blocking { [Reactor.run { Fiber.schedule { sleep 0 }; sleep 0.001; 5 }, Fiber.current_scheduler] } }
    end
  end

  class Foreign
    def block(*) = nil
    def unblock(*) = nil
    def kernel_sleep(*) = nil
    def io_wait(*) = nil
    def fiber_interrupt(*) = nil
    def fiber(&block) = Fiber.new(blocking: false, &block).tap(&:resume)
  end

  def test_a_scheduler_of_another_library_is_left_alone
    run_plain do
      Fiber.set_scheduler(foreign = Foreign.new)
      errors = [assert_raises(RuntimeError) { Reactor.run { flunk } }]
      Fiber.schedule { errors << assert_raises(RuntimeError) { Reactor.run { flunk } } }
      errors << assert_raises(RuntimeError) { Reactor.group { flunk } }
      errors.each { |error| assert_match(/another library.*Foreign/, error.message) }
      assert_same foreign, Fiber.scheduler
    end
  end

  # Each class of error at each moment: the rows of Reactor.run in callbacks.rb.
  def test_an_error_is_raised_unchanged_and_the_other_fibers_are_cancelled
    [-> {}, -> { sleep 0 }].product([RuntimeError, Interrupt]) do |before, kind|
      log = []
      error = kind.new("own")
      raised = assert_raises(kind) do
        on_a_thread do
          Reactor.run do
            Fiber.schedule { begin; Thread::Queue.new.pop; ensure; sleep 0.001; log << :ensured; end }
            before.call
            raise error
          end
        end
      end
      assert_same error, raised
      assert_nil error.cause
      assert_equal [:ensured], log
    end
  end

  def test_an_error_keeps_its_cause_and_none_of_an_ensure_clause_replaces_it
    error = assert_raises(IOError) do
      on_a_thread { Reactor.run { Fiber.schedule { begin; sleep; ensure; raise IndexError; end }; begin; raise KeyError; rescue KeyError; raise IOError; end } }
    end
    assert_instance_of KeyError, error.cause
  end

  def test_break_return_and_throw_raise_what_they_raise_in_another_fiber
    assert_raises(LocalJumpError) { on_a_thread { Reactor.run { break 5 } } }
    assert_raises(LocalJumpError) { on_a_thread { Reactor.run { sleep 0; return 5 } } }
    assert_raises(UncaughtThrowError) { on_a_thread { catch(:tag) { Reactor.run { throw :tag } } } }
    assert_equal 5, on_a_thread { Reactor.run { next 5 } }
  end
end

# frozen_string_literal: true

require_relative "helper"
require "reactor/testing"
require "tmpdir"
ReactorTest.optional "zlib"

# Worker threads for operations that release the GVL: which operations they run, how they end, and interrupted fibers.
class TestOffload < ReactorTest
  LARGE = ("reactor " * (1 << 20)).freeze

  def needs_blocking_operations = (skip "Ruby before 3.4 has no hook for blocking operations" if RUBY_VERSION < "3.4")

  # The number of turns of another fiber during the block.
  def turns_beside
    turns = 0
    other = Fiber.schedule { loop { sleep 0; turns += 1 } }
    yield
    turns
  ensure
    other.kill
  end

  def test_reactor_offload_works_in_any_fiber
    assert_equal [Thread.current, 42], [Reactor.offload { Thread.current }, Reactor.offload { 42 }], "without a scheduler it calls the block"
    assert_raises(ArgumentError) { Reactor.offload }
    in_fiber(workers: 3) do |scheduler|
      gate = gate(3)
      workers = Array.new(3) { Thread::Queue.new.tap { |queue| Fiber.schedule { queue << Reactor.offload { gate.call; Thread.current } } } }.map(&:pop)
      assert_equal 3, (workers - [Thread.current]).uniq.size, "no block ends before all have begun"
      assert_equal "x", assert_raises(KeyError) { Reactor.offload { raise KeyError, "x" } }.message
      assert_equal 7, Reactor.offload { Reactor.offload { 7 } }, "a worker has no scheduler"
      assert_equal Thread.current, Fiber.new(blocking: true) { Reactor.offload { Thread.current } }.resume
      assert_equal 5, scheduler.stats[:offload_on_worker]
    end
  end

  def test_reactor_offload_in_a_forked_child_runs_the_block_inline
    needs_fork
    in_fiber do
      child = fork { exit!(Reactor.offload { Thread.current } == Thread.current) }
      assert_predicate Process.wait2(child).last, :success?
    end
  end

  # Ways in which a job gets a thread, or none.
  def ways(scheduler)
    { worker: ->(&job) { Reactor.offload(&job) },
      own_thread: ->(&job) { scheduler.run_on_own_thread(&job) },
      under_another_scheduler: ->(&job) { Reactor.const_get(:OffloadPolicy).new(:never, 1).run_on_own_thread(job, &job) } }
  end

  # The worker is started by the first fiber. Thread.new gives a thread a copy of the storage of the fiber that calls it.
  def test_the_close_of_an_io_that_a_job_reads_returns
    log = []
    run_scheduler do |scheduler|
      reader, = IO.pipe.each { |io| track(io) }
      Fiber.schedule { assert_raises(IOError) { scheduler.offload { reader.read } }; log << :read }
      Fiber.schedule do
        assert eventually { Thread.list.any? { |thread| thread.name == "reactor worker" && thread.stop? } }
        reader.close
        log << :closed
      end
    end
    assert_equal %i[closed read], log.sort
  end

  def test_a_job_has_a_copy_of_its_fibers_storage_and_leaves_nothing_to_the_next_one
    in_fiber(workers: 1) do |scheduler|
      job = -> { [Fiber.current.storage, Fiber[:number] = Fiber[:written] = 0].first }
      ways(scheduler).each do |way, offload|
        [{ number: 1, other: 2 }, { number: 3 }, nil, { number: 4 }].each do |storage|
          fiber = Fiber.schedule(storage: storage) do
            assert_equal storage.to_h, offload.call(&job).to_h, way
            assert_equal storage.to_h, Fiber.current.storage.to_h, "the caller's is as it was"
          end
          assert(eventually { !fiber.alive? })
        end
      end
      assert_equal 1, scheduler.stats[:offload_threads]
      fiber = Fiber.schedule(storage: { number: 1 }) do
        assert_equal [1, 2], [Fiber.blocking { Reactor.offload { Fiber[:number] += 1; 1 } }, Fiber[:number]], "inline it is the fiber's own"
      end
      refute_predicate fiber, :alive?
    end
  end

  STATE_OF_A_JOB = lambda do
    thread = Thread.current
    [thread.keys, Fiber.current.storage.to_h, thread.thread_variable_get(:kept), thread.name, thread.priority, thread.report_on_exception, thread.abort_on_exception]
  end

  def set_state_of_a_job
    thread = Thread.current
    thread[:user] = "A"
    thread.thread_variable_set(:kept, "A")
    thread.name = "A"
    thread.priority = 1
    thread.report_on_exception = true
    thread.abort_on_exception = true
  end

  def test_a_job_finds_only_thread_variables_of_an_earlier_one
    in_fiber(workers: 1) do |scheduler|
      assert_equal [[], {}, nil, "reactor worker", 0, false, false], scheduler.offload(&STATE_OF_A_JOB)
      [-> {}, -> { raise "fails" }, -> { throw :nowhere }].each do |ending|
        scheduler.offload { set_state_of_a_job; ending.call } rescue nil
        assert_equal [[], {}, "A", "reactor worker", 0, false, false], scheduler.offload(&STATE_OF_A_JOB)
      end
      begun = Thread::Queue.new
      fiber = Fiber.schedule(storage: { number: 1 }) { scheduler.offload { set_state_of_a_job; begun << true; sleep } rescue nil }
      begun.pop
      fiber.raise("stop")
      assert_equal [[], {}, "A", "reactor worker", 0, false, false], scheduler.offload(&STATE_OF_A_JOB)
      assert_equal 1, scheduler.stats[:offload_threads]
    end
  end

  Held = Class.new

  # Runs a job on each worker. Its storage and its block each hold an object.
  def hold_objects_in_jobs(workers)
    gate = gate(workers)
    fibers = Array.new(workers) do
      Fiber.schedule(storage: { held: Held.new }) do
        held = Held.new
        Reactor.offload { gate.call; nil if held }
      end
    end
    assert(eventually { fibers.none?(&:alive?) })
  end

  def test_idle_workers_keep_no_object_of_a_job_alive
    in_fiber(workers: 16) do |scheduler|
      hold_objects_in_jobs(16)
      assert_equal 16, scheduler.stats[:offload_threads]
      # Not all 32: the collector takes stale words on a stack for references, on Ruby 3.3 once in each idle worker.
      assert(eventually { GC.start; ObjectSpace.each_object(Held).count < 24 }, -> { "#{ObjectSpace.each_object(Held).count} of 32 are left" })
    end
  end

  def test_the_number_of_workers_is_limited
    in_fiber(workers: 2) do |scheduler|
      at_once = most = done = 0
      lock = Thread::Mutex.new
      gate = Thread::Queue.new
      20.times do
        Fiber.schedule do
          scheduler.offload do
            lock.synchronize { most = [most, at_once += 1].max }
            gate.pop
            lock.synchronize { at_once -= 1 }
          end
          done += 1
        end
      end
      assert(eventually { at_once == 2 })
      gate.close
      assert(eventually { done == 20 })
      assert_equal 2, most
      assert_equal 2, scheduler.stats[:offload_threads]
    end
  end

  def test_an_interrupted_or_killed_fiber_waits_until_its_job_is_interrupted
    { left: ->(fiber) { fiber.raise(Timeout::Error) }, killed: ->(fiber) { fiber.kill } }.each do |how, interrupt|
      in_fiber do |scheduler|
        log = []
        begun = Thread::Queue.new
        fiber = Fiber.schedule do
          scheduler.offload do
            begun << true
            sleep
          ensure
            sleep 0.005
            log << :ended
          end
        rescue Timeout::Error
          log << :left
        ensure
          log << :killed unless log.last == :left
        end
        begun.pop
        interrupt.call(fiber)
        assert(eventually { !fiber.alive? })
        assert_equal [:ended, how], log
        assert_equal 1, scheduler.offload { 1 }, "the interrupt does not reach the next job"
      end
    end
  end

  # Each nested frame took some of the fiber's stack.
  def test_of_thousands_of_interrupts_of_a_job_that_continues_the_last_one_is_raised
    in_fiber do |scheduler|
      gate, begun = Thread::Queue.new, Thread::Queue.new
      ended = left = nil
      fiber = Fiber.schedule do
        scheduler.offload do
          Thread.handle_interrupt(Object => :never) do
            begun << true
            ended = gate.pop
          end
        end
      rescue IOError => error
        left = [error.message, ended]
      end
      begun.pop
      1_000.times do |number|
        fiber.raise(IOError, number.to_s)
        sleep 0
      end
      gate << :ended
      assert(eventually { !fiber.alive? })
      assert_equal ["999", :ended], left
    end
  end

  def test_an_interrupt_withdraws_a_job_that_has_not_begun
    in_fiber(workers: 1) do |scheduler|
      gate = Thread::Queue.new
      begun = false
      Fiber.schedule { scheduler.offload { gate.pop } }
      assert_raises(Timeout::Error) { Timeout.timeout(0.01) { scheduler.offload { begun = true } } }
      gate << nil
      assert_equal 1, scheduler.offload { 1 }
      refute begun
    end
  end

  # The exception is raised in the worker between two jobs, while the next job is already queued.
  def test_an_exception_in_a_worker_between_two_jobs_affects_neither
    in_fiber(workers: 1) do |scheduler|
      worker = scheduler.offload { Thread.current }
      raised = 0
      finishing = TracePoint.new(:call) do |call|
        next unless call.method_id == :next_job && Thread.current == worker && raised < 3

        raised += 1
        worker.raise("from outside")
      end
      gate = Thread::Queue.new
      results = []
      finishing.enable(target_thread: nil) do
        fibers = Array.new(4) { |i| Fiber.schedule { results << scheduler.offload { gate.pop; i } } }
        4.times { gate << :go }
        assert(eventually { fibers.none?(&:alive?) })
      end
      assert_equal [3, [0, 1, 2, 3]], [raised, results.sort]
    end
  end

  def test_a_killed_worker_is_replaced_and_its_fiber_gets_an_error
    in_fiber(workers: 1) do |scheduler|
      worker = scheduler.offload { Thread.current }
      worker.kill.join
      assert_equal 1, scheduler.offload { 1 }
      error = assert_raises(ThreadError) { scheduler.offload { Thread.current.kill; sleep } }
      assert_equal "the worker was killed", error.message
      done = 0
      10.times { Fiber.schedule { scheduler.offload { sleep 0.001 }; done += 1 } }
      scheduler.offload { Thread.list.select { |thread| thread.name == "reactor worker" && thread != Thread.current }.each(&:kill) }
      assert(eventually { done == 10 })
    end
  end

  # --- blocking operations of Ruby ---------------------------------------------------------------------------------------

  def test_deflate_runs_on_a_worker
    needs_blocking_operations
    in_fiber do |scheduler|
      # Ruby deflates in pieces. Other fibers run between two pieces even without a worker.
      among = lambda do
        before = scheduler.stats[:offload_on_worker]
        turns = turns_beside { Zlib::Deflate.deflate(LARGE) }
        pieces = scheduler.stats[:offload_on_worker] - before
        pieces.positive? && turns > 2 * pieces + 2
      end
      assert eventually(TEST_TIMEOUT / 2, &among)
      assert_equal LARGE, Zlib::Inflate.inflate(Zlib::Deflate.deflate(LARGE))
    end
  end

  # The cost is measured by the virtual clock, which stands still for this thread. Workers see real time, so the operations
  # run there until they are known to be cheap.
  def test_small_operations_run_inline
    needs_blocking_operations
    Dir.mktmpdir do |directory|
      10.times { |number| File.write(File.join(directory, number.to_s), "x") }
      round = -> { File.open(File.join(directory, "1")) {}; Dir.children(directory); File.stat(directory) }
      run_plain do
        Reactor::Testing.virtual_time(backend: BACKEND) do
          counts = -> { Fiber.scheduler.stats.values_at(:offload_on_worker, :offload_inline) }
          more = -> { before = counts.call; round.call; counts.call.zip(before).map { |now, then_| now - then_ } }
          handed, kept = more.call
          assert_operator handed, :>, 0, "their cost is unknown at first"
          all = handed + kept
          assert(eventually { more.call == [0, all] })
          10.times { assert_equal [0, all], more.call }
        end
      end
    end
  end

  def test_the_cost_of_a_place_decides_where_its_operations_run
    policy = Reactor.const_get(:OffloadPolicy).new(:measured, 1)
    inline = lambda do |place, work = -> { nil }|
      before = policy.stats[:offload_inline]
      policy.call(place, work)
      policy.stats[:offload_inline] > before
    end
    refute inline.(:here), "its cost is unknown"
    assert(eventually { inline.(:here) })
    refute inline.(:elsewhere)
    assert_raises(IndexError) { inline.(:here, -> { sleep 0.01; raise IndexError }) }
    10.times { refute inline.(:here), "one expensive operation counts for many cheap ones" }
    assert(eventually { inline.(:here) })
  ensure
    policy.stop
    policy.join
  end

  def test_policies
    needs_blocking_operations
    [[:always, :offload_on_worker, :offload_inline], [:never, :offload_inline, :offload_on_worker]].each do |policy, all, none|
      in_fiber(policy: policy) do |scheduler|
        3.times { File.stat(ROOT) }
        assert_operator scheduler.stats[all], :>=, 3
        assert_equal 0, scheduler.stats[none]
      end
    end
  end

  def test_an_interrupted_operation_ends_before_its_fiber_continues
    needs_blocking_operations
    Dir.mktmpdir do |directory|
      path = File.join(directory, "fifo")
      File.mkfifo(path)
      in_fiber(policy: :always) do |scheduler|
        20.times do
          assert_raises(Timeout::Error) { Timeout.timeout(0.003) { File.open(path) } }
          Thread.list.each { |thread| until_asleep(thread) if thread.name == "reactor worker" } # a busy worker would require another one
        end
        opened = nil
        Fiber.schedule { opened = File.open(path, &:read) }
        File.open(path, "w") { |file| file.write("hello") }
        assert(eventually { opened })
        assert_equal "hello", opened
        assert_operator scheduler.stats[:offload_threads], :<, 20
      end
    end
  end

  # IO.copy_stream waits for sockets, which a worker must not do with the scheduler's hooks. In a child, because a failure
  # would crash the VM.
  def test_an_override_of_the_hook_may_call_super
    needs_blocking_operations
    child = run_child(<<~'RUBY')
      seen = []
      scheduler = Class.new(Reactor::Scheduler) do
        attr_accessor :seen

        def blocking_operation_wait(work)
          seen << :asked
          super
        end
      end
      Fiber.set_scheduler(scheduler.new)
      Fiber.scheduler.seen = seen
      Fiber.schedule do
        r, w = IO.pipe
        from, to = IO.pipe
        to.write("x" * 10)
        puts IO.copy_stream(from, w, 10), File.stat("/").directory?
        [from, w].each(&:close)
        puts r.read.size, [from, r, w].map(&:closed?).inspect, seen.size > 1
      end
    RUBY
    assert_equal ["10\ntrue\n10\n[true, false, true]\ntrue\n", true], [child.out, child.status.success?], child.err[0, 2000]
  end

  def test_errors_are_those_of_plain_ruby
    tries = [-> { File.open("/nowhere/at/all") }, -> { Dir.children("/nowhere") }, -> { Dir.mkdir("/proc/x") },
             -> { File.rename("/nowhere", "/nowhere2") }, -> { Zlib::Inflate.inflate("nonsense") }]
    tries.product(%i[measured always never]) { |try, policy| assert_equal told(&try), in_fiber(policy: policy) { told(&try) } }
  end

  # A trap handler runs in the fiber that polls.
  def test_a_trap_handler_that_waits_for_a_worker_can_be_interrupted
    assert_equal "ArgumentError: stop\ntrue\n", child_says(<<~'RUBY')
      queue, entered = Thread::Queue.new, Thread::Queue.new
      main = Thread.current
      waiting = false
      Fiber.set_scheduler(scheduler = Reactor::Scheduler.new)
      trap(:USR1) do
        scheduler.offload { entered << true; Thread::Queue.new.pop }
      rescue ArgumentError, ThreadError => e
        puts "#{e.class}: #{e.message}"
      end
      Thread.new do
        Thread.pass until waiting && main.stop?
        Process.kill(:USR1, Process.pid)
      end
      fiber = nil
      Fiber.schedule { entered.pop; fiber.raise(ArgumentError, "stop"); queue << true }
      fiber = Fiber.schedule { sleep 0; waiting = true; puts queue.pop } # after its sleep the root fiber waits, and it is the one that polls
      scheduler.run
    RUBY
  end
end

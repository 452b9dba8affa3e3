# frozen_string_literal: true

require_relative "helper"
require "reactor/testing"

# Reactor.group: tasks that end together. No task outlives its group, whatever ends that.
class TestGroup < ReactorTest
  # A wait that is cancelled, and whose ensure clause waits in several ways.
  def cancelled(log, name)
    yield
  rescue Exception => error # rubocop:disable Lint/RescueException -- as a transaction does
    raise
  ensure
    log << [:not_seen, error] unless error.is_a?(Reactor::Cancelled)
    queue = Thread::Queue.new
    Fiber.schedule { sleep 0.001; queue << true }
    queue.pop
    sleep 0.001
    Thread.new { nil }.join
    log << name
  end

  # --- results ---------------------------------------------------------------------------------------------------

  def test_the_value_of_the_block_is_returned_when_all_tasks_have_ended
    log = []
    value = in_fiber do
      Reactor.group do |group|
        block_ends = Thread::Queue.new
        group.async { block_ends.pop; log << :task }
        sleep 0
        log << :block
        block_ends << true
        :value
      end
    end
    assert_equal [:value, %i[block task]], [value, log]
    assert_nil in_fiber { Reactor.group { nil } }
  end

  def test_results_are_in_the_order_of_async
    results = in_fiber { Reactor.group { |group| 5.times { |i| group.async { (5 - i).times { sleep 0 }; i } }; group.results } }
    assert_equal [0, 1, 2, 3, 4], results
  end

  def test_map_is_in_the_order_of_its_elements_and_waits_for_its_own_tasks_only
    values = in_fiber do
      Reactor.group do |group|
        other = group.async { never }
        group.map(%w[a b c].each_with_index) { |letter, index| (3 - index).times { sleep 0 }; letter.upcase }.tap { other.cancel }
      end
    end
    assert_equal %w[A B C], values
  end

  def test_first_is_the_value_of_the_task_that_completes_first_and_cancels_the_others
    log = []
    value = in_fiber do
      Reactor.group do |group|
        all_begun = Thread::Queue.new
        group.async { cancelled(log, :slow) { never } }
        group.async { all_begun.pop; :second }
        group.async { cancelled(log, :slower) { never } }
        all_begun << true
        group.first
      end
    end
    assert_equal [:second, %i[slow slower]], [value, log.sort]
  end

  def test_first_takes_the_first_value_that_its_block_wants_or_nil
    values = in_fiber do
      Reactor.group do |group|
        [1, 3, 4, 6].each { |number| group.async { number.times { sleep 0 }; number } }
        even = group.first(&:even?)
        [even, group.first { |_| false }, group.first, group.size]
      end
    end
    assert_equal [4, nil, nil, 0], values
    ended = in_fiber { Reactor.group { |group| 2.times { |i| group.async { (2 - i).times { sleep 0 }; i } }; group.wait.first } }
    assert_equal 1, ended, "the one that ended first"
  end

  # The owner and two other fibers, one of which may be cancelled before or after the task ends.
  [nil, 1].product([nil, :before, :after]).each do |limit, cancelled|
    define_method("test_each_caller_of_first_gets_an_answer_if_nothing_is_wanted_limit_#{limit.inspect}_cancelled_#{cancelled.inspect}") do
      got = in_fiber do
        Reactor.group do |outer|
          Reactor.group(limit: limit) do |inner|
            gate = Thread::Queue.new
            inner.async { gate.pop }
            callers = Array.new(2) { outer.async { [inner.first { |_| false }] } }
            callers.first.cancel if cancelled == :before
            outer.async { gate << true; sleep 0; callers.first.cancel if cancelled == :after }
            [inner.first { |_| false }, *outer.results.first(2)]
          end
        end
      end
      assert_includes cancelled ? [[nil, nil, [nil]], [nil, [nil], [nil]]] : [[nil, [nil], [nil]]], got
    end
  end

  def test_each_task_goes_to_one_caller_of_first
    got = in_fiber do
      Reactor.group do |outer|
        Reactor.group do |inner|
          all_wait = Thread::Queue.new
          4.times { |i| inner.async { all_wait.pop; i } }
          seen = []
          3.times { outer.async { inner.first { |value| seen << value; value == 3 } } }
          4.times { all_wait << true }
          inner.wait
          [seen.sort, outer.results.compact]
        end
      end
    end
    assert_equal [[0, 1, 2, 3], [3]], got
  end

  def test_a_task_has_a_state_a_value_and_an_error
    in_fiber do
      kept = nil
      assert_raises(KeyError) do
        Reactor.group do |group|
          queue = Thread::Queue.new
          failure = Thread::Queue.new
          kept = { completed: group.async { 1 }, running: group.async { queue.pop; 2 }, cancelled: group.async { never }, failed: group.async { failure.pop; raise KeyError } }
          assert_equal %i[completed running running running], kept.values.map(&:state)
          assert_equal [true, false], [kept[:cancelled].cancel, kept[:cancelled].cancel]
          assert_nil kept[:cancelled].value
          queue << true
          assert_equal 2, kept[:running].value
          failure << true
          never
        end
      end
      assert_equal %i[completed completed cancelled failed], kept.values.map(&:state)
      assert_equal [1, 2, nil], kept.values.first(3).map(&:value)
      assert_same kept[:failed].error, assert_raises(KeyError) { kept[:failed].value }
      assert_equal [nil, nil, nil], kept.values.first(3).map(&:error)
      assert_equal "#<Reactor::Group::Task failed>", kept[:failed].inspect
    end
  end

  def test_a_task_cannot_wait_for_itself
    assert_raises(ThreadError) { in_fiber { Reactor.group { |group| own = Thread::Queue.new; own << group.async { own.pop.value } } } }
    %i[wait first results].product([nil, 2], [false, true]).each do |call, limit, discard|
      next if discard && call != :wait

      error = assert_raises(ThreadError) do
        in_fiber { Reactor.group(limit: limit, discard: discard) { |group| group.async { never }; group.async { sleep 0; group.public_send(call) } } }
      end
      assert_equal "a task cannot wait for itself", error.message
    end
  end

  # Plain Ruby's message for threads that wait for one another.
  WAITS_FOR_ONE_ANOTHER = {
    groups: "Reactor.group { |a| Reactor.group { |b| a.async { sleep 0; b.wait }; b.async { sleep 0; a.wait } } }",
    tasks: "Reactor.group { |group| other = Thread::Queue.new; task = group.async { other.pop.value }; other << group.async { task.value } }",
    an_enumerator: "Reactor.group { |group| group.async { sleep 0; Enumerator.new { |_| group.wait }.next } }",
    a_place: "Reactor.group(limit: 1) { |group| group.async { group.map([1]) { nil } } }"
  }.freeze

  WAITS_FOR_ONE_ANOTHER.each do |name, code|
    define_method("test_a_deadlock_by_#{name}_is_reported") do
      assert_match(/No live threads left\. Deadlock\?/, run_child("Reactor.run { #{code} }").err)
    end
  end

  def test_a_group_that_discards_keeps_no_task_and_has_no_results
    left = in_fiber do
      Reactor.group(discard: true) do |group|
        100.times { group.async { sleep 0 } }
        group.wait
        assert_raises(RuntimeError) { group.results }
        assert_raises(RuntimeError) { group.first }
        group.instance_variables.map { |name| group.instance_variable_get(name) }.grep(Array).concat([group.instance_variable_get(:@running)]).sum(&:size)
      end
    end
    assert_equal 0, left
  end

  def test_arguments_of_async_are_those_of_its_block
    assert_equal [[1, 2], [3]], in_fiber { Reactor.group { |group| [[1, 2], [3]].each { |list| group.async(*list) { |*got| sleep 0; got } }; group.results } }
    in_fiber { assert_raises(ArgumentError) { Reactor.group { |group| group.async(key: 1) { flunk } } } }
  end

  # --- transient tasks -------------------------------------------------------------------------------------------

  def test_a_group_does_not_wait_for_transient_tasks_and_cancels_them_when_all_others_have_ended
    log = []
    tasks = []
    value = in_fiber do
      Reactor.group(limit: 1) do |group|
        2.times { |i| tasks << group.async(i, transient: true) { |name| cancelled(log, name) { never } } }
        group.async { sleep 0.001; log << :other; :value }
        group.wait # for the others only
        log << :waited
        [group.results, group.size, group.first]
      end.tap { log << :closed }
    end
    assert_equal [[[:value], 2, :value], [:other, :waited]], [value, log.first(2)]
    assert_equal [[0, 1], :closed], [log[2..3].sort, log.last]
    assert_equal [%i[cancelled] * 2, [true] * 2], [tasks.map(&:state), tasks.map { |task| %i[lost left].include?(task.reason) }]
  end

  def test_the_error_of_a_transient_task_fails_its_group_also_at_its_end
    assert_raises(KeyError) { in_fiber { Reactor.group { |group| group.async(transient: true) { sleep 0; raise KeyError }; never } } }
    assert_raises(KeyError) { in_fiber { Reactor.group { |group| group.async(transient: true) { begin; never; ensure; raise KeyError; end }; 1 } } }
  end

  def test_a_transient_task_that_ends_by_itself_ends_nothing
    assert_equal 2, in_fiber { Reactor.group { |group| group.async(transient: true) { 1 }; group.async { sleep 0.001; 2 }.value } }
  end

  # --- settle and any --------------------------------------------------------------------------------------------

  def test_settle_shows_how_each_task_has_ended_and_the_group_continues
    error = KeyError.new("own")
    seen = in_fiber do
      Reactor.group(limit: 2) do |group|
        tasks = group.settle(1..4) { |i| sleep 0; i == 2 ? raise(error) : i * 2 }
        [tasks.map(&:state), tasks.map { |task| task.error || task.value }, group.async { :later }.value, group.results, group.errors]
      end
    end
    assert_equal [%i[completed failed completed completed], [2, error, 6, 8], :later, [:later], []], seen
    assert_equal [], in_fiber { Reactor.group { |group| group.settle([]) { flunk } } }
  end

  def test_settle_returns_what_came_in_time_and_the_group_continues
    Reactor::Testing.virtual_time do |clock|
      Reactor.group(limit: 2) do |group|
        tasks = group.settle([[1, 0], [9, 0], [2, 1], [3, 0]], timeout: 2.5) { |seconds, more| begin; sleep seconds + more; seconds; rescue Timeout::Error; flunk; end }
        assert_equal [1, Reactor::DeadlineExceeded, Reactor::DeadlineExceeded, Reactor::DeadlineExceeded], tasks.map { |task| task.error&.class || task.value }
        tasks[1..].each { |task| assert_match(/within 2\.5 s: \S+test_group\.rb:\d+\z/, task.error.message) }
        assert_equal [2.5, [], :later], [clock.elapsed, group.errors, group.async { :later }.value]
      end
      assert_raises(Reactor::DeadlineExceeded) { Reactor.deadline(1) { Reactor.group { |group| group.settle([1], timeout: 2) { never } } } }
      assert_equal [1, 2], Reactor.group { |group| group.settle([1, 2], timeout: 0) { |i| i }.map(&:value) }
      Reactor.group do |group|
        assert_match(/timeout/, assert_raises(TypeError) { group.settle([1], timeout: "1") { flunk } }.message)
        assert_raises(ArgumentError) { group.settle([1], timeout: 1) }
      end
    end
  end

  def test_an_exception_that_ends_a_program_fails_a_group_by_settle_as_well
    assert_equal 3, assert_raises(SystemExit) { in_fiber { Reactor.group { |group| group.settle([1, 2]) { |i| sleep 0; i == 1 ? exit(3) : never } } } }.status
  end

  def test_any_is_the_value_that_comes_first_and_the_others_have_ended
    log = []
    value = in_fiber do
      Reactor.group do |group|
        others_begun = Thread::Queue.new
        third = Thread::Queue.new
        value = group.any([1, 2, 3, 4]) do |i|
          case i
          when 1 then 2.times { others_begun.pop }; third << true; raise KeyError
          when 3 then third.pop; :third
          else others_begun << true; cancelled(log, i) { never }
          end
        end
        [value, log.sort, group.size, group.async { :later }.value, group.errors]
      end
    end
    assert_equal [:third, [2, 4], 0, :later, []], value
  end

  # The native scheduler lets other fibers run before it returns from the start of a fiber that has computed for long.
  def test_any_cancels_a_task_that_is_being_started
    log = []
    in_fiber do |scheduler|
      scheduler.singleton_class.prepend(Module.new { def fiber(...) = super.tap { self.yield; self.yield } })
      second_begun = Thread::Queue.new
      assert_equal :first, Reactor.group { |group| group.any([1, 2]) { |i| i == 1 ? (second_begun.pop; :first) : cancelled(log, i) { second_begun << true; never } } }
      assert_equal [2], log
      Reactor.group do |group|
        group.async { group.any([3]) { |i| cancelled(log, i) { never } } }.cancel
      end
    end
    assert_equal [2, 3], log
  end

  def test_a_trap_handler_may_start_a_task
    out = child_says(<<~'RUBY')
      Reactor.group do |group|
        trap(:USR1) { group.async { sleep 0.001; puts "task ended" } }
        Process.kill(:USR1, Process.pid)
        sleep 0.001 until group.size == 1
      end
      puts "group ended"
    RUBY
    assert_equal "task ended\ngroup ended\n", out
  end

  def test_any_cancels_the_others_once
    calls = 0
    trace = TracePoint.new(:call) { |call| calls += 1 if call.method_id == :cancel && call.self.is_a?(Reactor::Group::Task) }
    trace.enable { in_fiber { Reactor.group { |group| group.any(1..50) { sleep 0 } } } }
    assert_operator calls, :<=, 50 + 50 # once as others, and once as the call ends
  end

  def test_the_first_value_of_any_ends_a_wait_for_the_next_element
    log = []
    jobs = Thread::Queue.new << 1
    source = Enumerator.new { |yielder| cancelled(log, :source) { loop { yielder << jobs.pop } } }
    value = in_fiber { Reactor.group { |group| [group.any(source) { |i| sleep 0; i }, group.async { :later }.value] } }
    assert_equal [[1, :later], [:source]], [value, log.flatten.grep(:source)]
  end

  def test_any_asks_for_no_element_after_the_first_value
    asked = []
    endless = Enumerator.new { |yielder| (1..).each { |i| asked << i; yielder << i } }
    values = in_fiber do
      [Reactor.group { |group| group.any(endless) { |i| i } },
       Reactor.group(limit: 2) { |group| group.any(endless) { |i| sleep 0; i == 1 ? raise(KeyError) : i } }]
    end
    assert_equal 1, values[0]
    assert_includes 2..3, values[1]
    assert_operator asked.size, :<=, 2 + 5
  end

  def test_any_raises_the_error_of_the_first_element_if_no_task_completes
    log = []
    in_fiber do
      Reactor.group do |group|
        log << assert_raises(KeyError) { group.any([0, 1, 2]) { |i| (3 - i).times { sleep 0 }; raise KeyError, i.to_s } }.message
        log << group.any([]) { flunk } << group.async { :later }.value
        begun = Thread::Queue.new
        group.async { 2.times { begun.pop }; group.cancel }
        log << group.any([1, 2]) { begun << true; never }
      end
    end
    assert_equal ["0", nil, :later, nil], log
  end

  # Whatever ends the caller, its tasks end.
  def test_any_that_is_left_cancels_its_tasks
    log = []
    in_fiber do
      Reactor.group do |group|
        assert_raises(Timeout::Error) { Timeout.timeout(0.001) { group.any([1, 2]) { |i| cancelled(log, i) { never } } } }
        group.wait
        log << :goes_on
        task = group.async { group.any([3]) { |i| cancelled(log, i) { never } } }
        sleep 0
        task.cancel
      end
      log << :closed
      assert_raises(IOError) { Reactor.group { |group| group.async { sleep 0.001; raise IOError }; group.any([4]) { |i| cancelled(log, i) { never } } } }
    end
    assert_equal [[1, 2], :goes_on, 3, :closed, 4], [log.first(2).sort, *log.drop(2)]
  end

  # --- errors ----------------------------------------------------------------------------------------------------

  def test_the_first_error_cancels_the_other_tasks_whose_ensure_clauses_wait_and_is_raised_in_the_owner
    log = []
    error = KeyError.new("own")
    raised = assert_raises(KeyError) do
      in_fiber do
        Reactor.group do |group|
          all_begun = Thread::Queue.new
          group.async { cancelled(log, :before) { never } }
          group.async { all_begun.pop; raise error }
          group.async { cancelled(log, :after) { sleep } }
          all_begun << true
        end
      ensure
        log << :owner
      end
    end
    assert_same error, raised
    assert_nil raised.cause
    assert_equal [%i[after before], :owner], [log.first(2).sort, log.last]
    assert_equal 3, log.size
  end

  def test_errors_that_are_not_raised_are_reported_and_kept
    said = run_child(<<~RUBY)
      group = nil
      begin
        Reactor.run do
          Reactor.group do |opened|
            group = opened
            waiting = Thread::Queue.new
            opened.async { begin; sleep; ensure; raise KeyError, "second"; end }
            opened.async { waiting.pop; raise IOError, "first" }
            begin; waiting << true; sleep; ensure; raise "third"; end
          end
        end
      rescue IOError => error
        puts error.message
      end
      puts group.errors.map(&:message).sort.join(" ")
      Reactor.run do
        Reactor.group { |other| other.async { begin; sleep; ensure; raise "by break"; end }; break }
      end
    RUBY
    assert_equal "first\nfirst second third\n", said.out
    assert_equal ["by break", "second", "third"], said.err.scan(/: (by break|first|second|third) \(/).flatten.sort
    assert_equal 3, said.err.scan("> has another error:").size
  end

  def test_an_error_that_is_raised_again_by_value_is_one_error
    failed = nil
    assert_raises(KeyError) do
      in_fiber do
        Reactor.group do |group|
          failed = group
          failing = group.async { sleep 0.001; raise KeyError }
          2.times { group.async { failing.value } }
          failing.value
        end
      end
    end
    assert_equal [KeyError], failed.errors.map(&:class)
  end

  # --- cancelling ------------------------------------------------------------------------------------------------

  # The fiber that it starts cancels it, and raises before it first waits: that error reaches the task, and the task still ends.
  def test_a_task_that_is_cancelled_by_a_fiber_it_starts_ends_even_if_that_fiber_raises
    log = []
    in_fiber do
      Reactor.group do |group|
        task = group.async do
          sleep 0
          begin
            Fiber.schedule { task.cancel; raise IndexError }
          rescue IndexError
            log << :rescued
          end
          Queue.new.pop(timeout: 0.01)
          log << :went_on
        ensure
          log << :ensure
        end
      end
    end
    assert_equal %i[rescued ensure], log
  end

  def test_a_task_that_is_being_cancelled_starts_none
    log = []
    assert_raises(KeyError) do
      in_fiber do
        Reactor.group do |group|
          group.async do
            never
          ensure
            assert_raises(RuntimeError) { group.async { log << :never } }
            log << :refused
          end
          group.async { sleep 0; raise KeyError }
        end
      end
    end
    assert_equal [:refused], log
  end

  def test_a_group_that_has_ended_starts_no_task
    in_fiber do
      group = nil
      Reactor.group { |opened| group = opened }
      assert_raises(RuntimeError) { group.async { flunk } }
      assert_equal [[], 0, false], [group.results, group.size, group.inspect.include?("running,") && false]
      assert_nil group.first
      assert_same group, group.wait.cancel
    end
  end

  # --- limits ----------------------------------------------------------------------------------------------------

  def test_no_more_tasks_run_than_the_limit_and_they_begin_in_order
    began, running = [], []
    in_fiber do
      Reactor.group(limit: 3) do |group|
        20.times { |i| group.async { began << i; running << group.size; (i % 3 + 1).times { sleep 0 } } }
      end
    end
    assert_equal [3, [*0...20]], [running.max, began]
  end

  def test_map_asks_for_an_element_when_there_is_a_place
    asked = 0
    endless = Enumerator.new { |yielder| loop { yielder << (asked += 1) } }
    in_fiber do
      assert_raises(KeyError) { Reactor.group(limit: 2) { |group| group.map(endless) { |i| sleep 0; raise KeyError if i == 5 } } }
    end
    assert_includes 5..8, asked
  end

  def test_a_place_is_free_again_after_an_error_of_starting
    in_fiber do |scheduler|
      Reactor.group(limit: 1) do |group|
        scheduler.singleton_class.prepend(failing = Module.new { def fiber(...) = raise(FiberError, "no memory for a fiber") })
        2.times { assert_raises(FiberError) { group.async { flunk } } }
        failing.remove_method(:fiber)
        assert_equal [0, nil, []], [group.size, group.first, group.results]
        assert_equal 1, group.async { 1 }.value
        assert_equal [1], group.results
      end
    end
  end

  # --- time ------------------------------------------------------------------------------------------------------

  def test_a_timeout_names_three_places_of_tasks_that_are_late
    message = lambda do |tasks, transient = 0|
      assert_raises(Timeout::Error) do
        Reactor.group(timeout: 0.5) do |group|
          transient.times { group.async(transient: true) { never } }
          [-> { group.async { never } }, -> { group.async { never } }, -> { group.async { never } }, -> { group.async { never } }].first(tasks).each(&:call)
          group.settle([1, 2]) { never } if tasks == 4
          never
        end
      end.tap { |error| assert_nil error.cause }.message
    end
    Reactor::Testing.virtual_time do
      place = /\S+test_group\.rb:\d+/
      assert_equal "the block did not finish within 0.5 s", message.call(0, 1)
      assert_match(/\A1 task did not finish within 0\.5 s: #{place}\z/, message.call(1))
      assert_match(/\A3 tasks did not finish within 0\.5 s: #{place}\z/, message.call(3), "all in one line")
      assert_match(/\A6 tasks did not finish within 0\.5 s: #{place}, #{place}\z/, message.call(4))
    end
  end

  # --- ends of the block -----------------------------------------------------------------------------------------

  LEFT_BY = {
    break: ->(task) { [1].each { Reactor.group { |group| task.call(group); break } } },
    throw: ->(task) { catch(:tag) { Reactor.group { |group| task.call(group); throw :tag } } },
    exception: ->(task) { begin; Reactor.group { |group| task.call(group); raise IOError }; rescue IOError; nil; end },
    fiber_raise_twice: lambda { |task|
      owner = Fiber.current
      begin; Reactor.group { |group| task.call(group); Fiber.schedule { 2.times { sleep 0; owner.raise(IOError) } } }; rescue IOError; nil; end
    },
    kill: lambda { |task|
      Fiber.schedule do
        owner = Fiber.current
        Reactor.group { |group| task.call(group); Fiber.schedule { sleep 0; owner.kill } }
      end
    }
  }.freeze

  LEFT_BY.each do |name, leave|
    define_method("test_no_task_outlives_a_group_whose_block_is_left_by_#{name}") do
      log = []
      in_fiber do
        begun = false
        task = ->(group) { group.async { begun = true; cancelled(log, :task) { never } } }
        leave.call(task)
        sleep 0.001 until log.any?
        assert begun
      end
      assert_equal [:task], log
    end
  end

  { kill: :kill.to_proc, raise: ->(thread) { thread.raise(IOError) } }.each do |name, finish|
    define_method("test_the_ensure_clauses_of_all_tasks_run_if_the_thread_ends_by_#{name}") do
      log = []
      made = Thread::Queue.new
      thread = Thread.new do
        Thread.current.report_on_exception = false
        Fiber.set_scheduler(Reactor::Scheduler.new)
        Fiber.schedule do
          Reactor.group do |outer|
            outer.async { cancelled(log, :outer) { never } }
            outer.async { Reactor.group { |inner| inner.async { cancelled(log, :inner) { never } } } }
            made << Fiber.scheduler
          end
        ensure
          log << :owner
        end
        Fiber.scheduler.run
      end
      scheduler = made.pop
      until_parked(scheduler, 4)
      finish.call(thread)
      outcome { join_or_fail(thread, TEST_TIMEOUT) }
      assert_equal [%i[inner outer], :owner], [log.first(2).sort, log.last]
      assert_equal [3, 0, true], [log.size, scheduler.live, scheduler.closed?]
    end
  end

  def test_a_group_in_an_enumerator_is_interrupted_there
    assert_raises(KeyError) do
      in_fiber { Enumerator.new { |_| Reactor.group { |group| group.async { sleep 0; raise KeyError }; sleep } }.next }
    end
    values = in_fiber do
      numbers = Enumerator.new { |yielder| Reactor.group { |group| group.async { sleep 0.001 }; 2.times { |i| yielder << i; sleep 0 } }; yielder << :end }
      [numbers.next, numbers.next, numbers.next]
    end
    assert_equal [0, 1, :end], values
  end

  # --- who may use it --------------------------------------------------------------------------------------------

  # README shows it at the top level.
  def test_without_a_scheduler_a_group_opens_a_run_of_its_own
    assert_equal [[2, 4], nil], run_plain { [Reactor.group(limit: 1) { |group| group.map([1, 2]) { |i| sleep 0.001; i * 2 } }, Fiber.scheduler] }
    assert_raises(KeyError) { run_plain { Reactor.group { |group| group.async { sleep 0; raise KeyError }; sleep } } }
    assert_raises(Timeout::Error) { run_plain { Reactor.group(timeout: 0.001) { sleep } } }
    assert_raises(LocalJumpError) { run_plain { Reactor.group { break } } }
  end

  def test_in_a_root_fiber_a_group_runs_under_the_scheduler_that_is_set
    run_scheduler do |scheduler|
      assert_equal [[1], true], Reactor.group { |group| group.async { sleep 0.001; 1 }; [group.results, Fiber.current_scheduler.equal?(scheduler)] }
      assert_raises(KeyError) { Reactor.group { |group| group.async { sleep 0; raise KeyError }; sleep } }
      assert_equal [3], Fiber.blocking { Reactor.group { |group| group.map([3]) { |i| sleep 0; i } } }
    end
  end

  def test_in_a_forked_child_a_group_opens_a_run_of_its_own
    needs_fork
    said = child_says(<<~RUBY)
      Reactor.run do
        group = ->(name) { Reactor.group { |group| group.map([name]) { |each| sleep 0.001; each } } }
        pid = fork { puts group.call(:child) }
        Process.wait(pid)
        puts group.call(:parent)
      end
    RUBY
    assert_equal "child\nparent\n", said
  end

  def test_other_threads_get_a_thread_error
    in_fiber do
      Reactor.group do |group|
        task = group.async { sleep 0.001 }
        calls = [-> { group.async { flunk } }, -> { group.wait }, -> { group.cancel }, -> { group.results }, -> { group.first },
                 -> { group.map([1]) { flunk } }, -> { task.value }, -> { task.cancel }]
        classes = Thread.new { calls.map { |call| outcome(&call) } }.value
        assert_equal [[:raised, ThreadError]] * calls.size, classes
      end
    end
  end
end

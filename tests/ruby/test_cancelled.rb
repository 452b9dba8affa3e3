# frozen_string_literal: true

require_relative "helper"
require "monitor"
require "timeout"

# Reactor::Cancelled: what every ending of the library raises. And what else ends a fiber: fiber_interrupt, a kill, a limit.
class TestCancelled < ReactorTest
  # Shaped like the transaction method of a database library: an exception rolls back, everything else commits.
  class Database
    attr_reader :log, :error

    def initialize = @log = []

    def transaction
      rolled_back = false
      yield
    rescue Exception => @error # rubocop:disable Lint/RescueException, Naming/RescuedExceptionsVariableName
      rolled_back = true
      sleep 0.001 # the server answers
      @log << :rolled_back
      raise
    ensure
      @log << :committed unless rolled_back
    end

    # A transfer of which only half is done, unless something ends it.
    def transfer = transaction { @log << :half; sleep }
  end

  Failed = Class.new(StandardError)

  # How a transfer is ended, and the reason.
  WAYS = {
    sibling: [->(bank) { Reactor.group { |group| group.async { bank.transfer }; group.async { sleep 0; raise Failed } } }, Failed],
    block: [->(bank) { Reactor.group { |group| group.async { bank.transfer }; raise Failed } }, Failed],
    limit: [->(bank) { Reactor.group(timeout: 0.001) { |group| group.async { bank.transfer } } }, Reactor::DeadlineExceeded],
    limit_of_the_block: [->(bank) { Reactor.group(timeout: 0.001) { bank.transfer } }, Reactor::DeadlineExceeded],
    any: [->(bank) { Reactor.group { |group| group.any([-> { bank.transfer }, -> { sleep 0 }], &:call) } }, :lost],
    first: [->(bank) { Reactor.group { |group| group.async { bank.transfer }; group.async { sleep 0 }; group.first } }, :lost],
    transient: [->(bank) { Reactor.group { |group| group.async(transient: true) { bank.transfer } } }, :left],
    break: [->(bank) { Reactor.group { |group| group.async { bank.transfer }; break } }, :left],
    task: [->(bank) { Reactor.group { |group| group.async { bank.transfer }.cancel(:enough) } }, :enough],
    deadline: [->(bank) { Reactor.deadline(0.001) { bank.transfer } }, Reactor::DeadlineExceeded],
    settle: [->(bank) { Reactor.group { |group| group.settle([1], timeout: 0.001) { bank.transfer } } }, Reactor::DeadlineExceeded]
  }.freeze

  WAYS.each do |name, (way, reason)|
    define_method("test_a_transaction_is_rolled_back_by_#{name}") do
      bank = Database.new
      in_fiber do
        way.call(bank)
      rescue Failed, Reactor::DeadlineExceeded
        bank.log << :over
      end
      assert_equal %i[half rolled_back], bank.log - [:over]
      assert_instance_of Reactor::Cancelled, bank.error
      assert reason.is_a?(Symbol) ? reason == bank.error.reason : bank.error.reason.is_a?(reason), bank.error.reason.inspect
    end
  end

  # Runs the block where `run` of a scheduler is ended, and returns what is raised.
  def ended_run
    Reactor.run do
      Fiber.schedule { yield }
      sleep 0
      raise Failed
    end
  rescue Failed => error
    error
  end

  def test_a_transaction_is_rolled_back_at_the_end_of_a_run
    bank = Database.new
    raised = run_plain { ended_run { bank.transfer } }
    assert_equal %i[half rolled_back], bank.log
    assert_same raised, bank.error.reason
  end

  def test_a_transaction_is_rolled_back_at_an_interrupt
    needs_fork
    said = run_child(<<~RUBY)
      Reactor.run do
        Fiber.schedule do
          sleep
        rescue Exception => error
          sleep 0.001
          puts error.class, error.reason.class
          raise
        end
        Process.kill(:INT, Process.pid)
        sleep
      end rescue puts $!.class
    RUBY
    assert_equal ["Reactor::Cancelled", "Interrupt"], said.out.lines(chomp: true).first(2)
  end

  # As in a program whose thread has such a clause when it exits.
  def test_a_signal_ends_the_wait_of_a_clause_that_the_end_runs
    needs_fork
    { "Fiber.set_scheduler(Reactor::Scheduler.new); Fiber.schedule(&clause); Fiber.schedule { sleep 0; exit 5 }" => 5,
      "Reactor.run { Fiber.schedule(&clause); sleep 0; exit 5 }" => 5, "Thread.new(&clause); Thread.pass until $begun; exit 5" => 5,
      "Reactor.run { Fiber.schedule(&clause); Process.kill(:TERM, $$); sleep }" => nil }.each do |code, status|
      ended = run_child(<<~RUBY) { |pid, said| said.call("clause"); Process.kill(:TERM, pid) }
        clause = lambda do
          $begun = true
          sleep
        ensure
          begin
            puts "clause"
            sleep
          ensure
            puts "inner clause"
          end
        end
        #{code}
      RUBY
      assert_equal ["clause\ninner clause\n", status], [ended.out, ended.status.exitstatus], code
    end
  end

  # The end of the run by an error is over when no fiber is left.
  def test_after_a_run_whose_clauses_raised_the_scheduler_runs_other_fibers
    done = false
    run_scheduler do |scheduler|
      Fiber.schedule { begin; sleep; ensure; sleep 0; exit 3; end }
      Fiber.schedule { sleep 0; exit 1 }
      assert_equal 1, assert_raises(SystemExit) { scheduler.run }.status
      Fiber.schedule { sleep 0.001; done = true }
      scheduler.run
    end
    assert done
  end

  def test_it_is_no_standard_error_and_is_not_reported
    refute_operator Reactor::Cancelled, :<, StandardError
    _, said = capture_io do
      in_fiber do
        Reactor.group do |group|
          group.async { begin; sleep; rescue StandardError; flunk; end }
          Fiber.scheduler.fiber { sleep 0; raise Reactor::Cancelled }
          sleep 0.001
          group.cancel
        end
      end
    end
    assert_empty said
  end

  def test_a_task_that_swallows_it_continues_and_its_group_waits_for_it
    task = nil
    in_fiber do
      Reactor.group do |group|
        task = group.async { begin; sleep; rescue Reactor::Cancelled => error; sleep 0.001; error.reason; end }
        task.cancel(:enough)
        refute task.cancel(:again), "it has been asked"
        assert_equal :enough, task.value
      end
    end
    assert_equal %i[completed enough], [task.state, task.reason]
  end

  # Only an ensure or rescue clause of the fiber may still wait.
  def test_at_the_end_of_a_scheduler_a_fiber_that_swallows_it_is_cancelled_again_and_killed_the_third_time
    log = []
    raised = run_plain do
      ended_run do
        loop do
          sleep
        rescue Exception => error # rubocop:disable Lint/RescueException
          sleep 0.001
          log << error.class
        end
      ensure
        sleep 0.001
        log << :ended
      end
    end
    assert_instance_of Failed, raised
    assert_equal [Reactor::Cancelled] * 3 + [:ended], log
  end

  # --- fiber_interrupt ---------------------------------------------------------------------------------------------------

  WAITS = {
    sleep: -> { sleep },
    sleep_for: -> { sleep 3600 },
    queue: -> { Thread::Queue.new.pop },
    queue_with_limit: -> { Thread::Queue.new.pop(timeout: 3600) },
    lock: -> { lock_of_another_fiber },
    permit: -> { Reactor::Semaphore.new(1).tap(&:acquire).acquire },
    thread: -> { thread = Thread.new { Thread.stop }; begin; thread.join; ensure; thread.kill; end },
    condition_variable: -> { Thread::Mutex.new.tap { |mutex| mutex.synchronize { Thread::ConditionVariable.new.wait(mutex) } } },
    timeout: -> { Timeout.timeout(3600) { sleep } },
    enumerator: -> { Enumerator.new { |y| y << sleep }.next },
    enumerator_with_a_clause: -> { Enumerator.new { |_| begin; sleep; ensure; sleep 0.001; end }.next },
    fiber: -> { Fiber.new { sleep }.resume },
    read: -> { IO.pipe { |reader, _| reader.read(1) } },
    wait_readable: -> { IO.pipe { |reader, _| reader.wait_readable } },
    select: -> { IO.pipe { |reader, _| IO.select([reader]) } },
    group: -> { Reactor.group { |group| group.async { sleep } } },
    tasks: -> { Reactor.group { |group| 2.times { group.async { sleep } }; group.wait } },
    value: -> { Reactor.group { |group| group.async { sleep }.value } },
    first: -> { Reactor.group { |group| group.async { sleep }; group.first } },
    results: -> { Reactor.group { |group| group.async { sleep }; group.results } },
    place: -> { Reactor.group(limit: 1) { |group| 2.times { group.async { sleep } } } },
    run: -> { Reactor.run { sleep } },
    deadline: -> { Reactor.deadline(3600) { sleep } }
  }.freeze

  # A fiber whose time slice is over when it starts does not wait yet.
  def self.interrupt(fiber, scheduler) = (sleep 0.001 until scheduler.fiber_interrupt(fiber, Failed.new) || !fiber.alive?)

  # What ends the wait of a block, what is raised in the block (nothing by a kill), and what comes of it.
  ENDINGS = {
    "fiber_interrupt" => [->(block) { interrupt(Fiber.schedule(&block), Fiber.scheduler) }, Failed],
    "fiber_interrupt_by_a_thread" => [->(block) { Thread.new(Fiber.schedule(&block), Fiber.scheduler) { |*both| interrupt(*both) }.join }, Failed],
    "a_kill" => [->(block) { Fiber.schedule(&block).kill }, nil],
    "a_timeout" => [->(block) { Timeout.timeout(0.002) { block.call } }, Timeout::ExitException, Timeout::Error],
    "a_deadline" => [->(block) { Reactor.deadline(0.002) { block.call } }, Reactor::Cancelled, Reactor::DeadlineExceeded],
    "the_limit_of_a_group" => [->(block) { Reactor.group(timeout: 0.002) { block.call } }, Reactor::Cancelled, Reactor::DeadlineExceeded],
    "a_failing_task" => [->(block) { Reactor.group { |group| group.async { sleep 0.002; raise Failed }; block.call } }, Reactor::Cancelled, Failed],
    "cancelling_a_task" => [->(block) { Reactor.group { |group| group.async { block.call }.tap { sleep 0.002 }.cancel } && nil }, Reactor::Cancelled],
    "cancelling_a_group" => [->(block) { Reactor.group { |group| group.async { block.call }; sleep 0.002; group.cancel } && nil }, Reactor::Cancelled]
  }.freeze

  # What the ending raises where the block waits, and the outcome. A clause that waits has run.
  def ended(ending, wait)
    seen = is_over = nil
    block = lambda do |*|
      wait.call
      seen = :the_wait_returned
    rescue StandardError => error # and no ending of the library
      seen = error.class
    rescue Exception => error # rubocop:disable Lint/RescueException -- as a transaction does
      seen = error.class
      raise
    ensure
      sleep 0.001
      is_over = true
    end
    raised = outcome { ending.call(block) }
    sleep 0.001 until is_over
    [seen, (raised.last if raised.first == :raised)]
  end

  ENDINGS.each do |name, (ending, inside, outside)|
    define_method("test_#{name}_ends_every_wait") do
      places = { a_fiber: ->(&block) { in_fiber(&block) }, a_root_fiber: ->(&block) { run_scheduler { Reactor.run(&block) } } }
      places.each do |place, run|
        got = WAITS.transform_values { |wait| run.call { |*| ended(ending, wait) } }
        assert_equal WAITS.transform_values { [inside, outside] }, got, place
      end
    end
  end

  # Waits for a mutex whose holder lets go when the wait has ended.
  def self.lock_of_another_fiber
    mutex = Thread::Mutex.new
    gate = Thread::Queue.new
    Fiber.schedule { mutex.synchronize { gate.pop } }
    mutex.lock
  ensure
    gate.close
  end

  def test_fiber_interrupt_ends_a_wait_for_a_thread_and_for_a_child
    gate = Thread::Queue.new
    waits = [-> { Thread.new { gate.pop }.join }, -> { Reactor.offload { gate.pop } }]
    waits << -> { Process.wait(@child = spawn("sleep 60")) } unless windows?
    waits.each do |wait|
      found = nil
      in_fiber do |scheduler|
        waiting = Fiber.schedule { found = outcome(&wait) }
        until_parked(scheduler, 1)
        scheduler.fiber_interrupt(waiting, Failed.new)
        gate << 1
      end
      assert_equal [:raised, Failed], found
    end
  ensure
    (Process.kill(:KILL, @child) && Process.wait(@child)) rescue Errno::ESRCH if @child
  end

  def test_fiber_interrupt_of_a_fiber_that_does_not_wait_does_nothing
    value = in_fiber do |scheduler|
      ended = Fiber.schedule { :value }
      scheduler.fiber_interrupt(ended, Failed.new)
      refute scheduler.fiber_interrupt(Fiber.new(blocking: true) { nil }.tap(&:resume), Failed.new), "an error for the thread"
      woken = nil
      queue = Thread::Queue.new
      waiting = Fiber.schedule { woken = outcome { queue.pop } }
      queue << :item
      scheduler.fiber_interrupt(waiting, Failed.new)
      sleep 0 until woken
      woken
    end
    assert_equal [:value, :item], value
  end

  # --- a kill ------------------------------------------------------------------------------------------------------------

  # Other fibers run while the worker reads into the string of the fiber that is being killed.
  def test_a_killed_fiber_that_waits_for_a_worker_holds_no_other_fiber
    skip_under_stress
    with_file("\0" * (64 << 20)) do |file|
      ways = { kill: ->(fiber, _) { fiber.kill }, cancel: ->(_, task) { task.cancel }, interrupt: ->(fiber, _) { Fiber.scheduler.fiber_interrupt(fiber, Failed.new) } }
      ways.each do |name, way|
        turned = eventually { turns_while_it_ends(file, way).positive? }
        assert turned, name
      end
    end
  end

  def with_file(bytes)
    require "tempfile"
    Tempfile.create("cancelled") do |file|
      file.binmode
      file.write(bytes)
      file.fsync
      yield file
    end
  end

  # How often another fiber runs until the one that reads has ended.
  def turns_while_it_ends(file, way)
    turns = 0
    in_fiber do
      Reactor.group do |group|
        reader = nil
        file.advise(:dontneed) # what is cached, the fiber mostly reads itself
        task = group.async do
          reader = Fiber.current
          file.pread(64 << 20, 0)
        rescue Failed
          nil
        end
        sleep 0 while reader.alive? && Fiber.scheduler.stats[:pool_running].zero? # a job that no worker has begun ends at once
        way.call(reader, task)
        while reader.alive?
          turns += 1
          sleep 0
        end
      end
    end
    turns
  end

  # --- a limit and an answer ---------------------------------------------------------------------------------------------

  LIMITS = {
    timeout: ->(wait) { Timeout.timeout(0.05) { wait.call } },
    deadline: ->(wait) { Reactor.deadline(0.05) { wait.call } },
    group: ->(wait) { Reactor.group(timeout: 0.05) { wait.call } },
    task: ->(wait) { Reactor.group(timeout: 0.05) { |group| group.async { wait.call }.value } },
    settle: ->(wait) { Reactor.group { |group| group.settle([1], timeout: 0.05) { wait.call }.first.value } }
  }.freeze

  # The answer comes at once; then a fiber computes until the limit has passed.
  def after_a_stall(limit, answers, wait)
    in_fiber do
      found = nil
      Fiber.schedule { found = outcome { limit.call(wait) } }
      answers.call
      over = clock + 0.06
      nil while clock < over
      sleep 0 until found
      found
    end
  end

  def test_an_answer_that_came_in_time_beats_a_limit_that_passed_meanwhile
    LIMITS.each do |name, limit|
      reader, writer = pipe
      queue = Thread::Queue.new
      assert_equal [:value, "x"], after_a_stall(limit, -> { writer << "x" }, -> { reader.readpartial(1) }), name
      assert_equal [:value, "x"], after_a_stall(limit, -> { queue << "x" }, -> { queue.pop }), name
      assert_equal [:value, "x"], after_a_stall(limit, -> { queue << "x" }, -> { Enumerator.new { |y| y << queue.pop }.next }), name
      assert_equal [:value, "x"], after_a_stall(limit, -> {}, -> { sleep 0.001; "x" }), name
    end
  end

  def test_the_limit_that_passed_ends_the_next_wait_of_its_block
    LIMITS.each do |name, limit|
      reader, writer = pipe
      log = []
      found = after_a_stall(limit, -> { writer << "x" }, -> { log << reader.readpartial(1); sleep; log << :never })
      assert_equal [["x"], :raised], [log, found.first], name
      assert_operator found.last, :<=, Timeout::Error
    end
  end

  # --- deadlines ---------------------------------------------------------------------------------------------------------

  def test_a_deadline_that_raises_nothing_leaves_its_block
    log = []
    got = in_fiber do
      inner = Reactor.deadline(0.001, raises: false) { log << :begun; sleep; log << :never }
      [inner, Reactor.deadline(1, raises: false) { :value }]
    end
    assert_equal [[:begun], [nil, :value]], [log, got]
    error = assert_raises(Reactor::DeadlineExceeded) { in_fiber { Reactor.deadline(0.001) { Reactor.deadline(1, raises: false) { sleep } } } }
    assert_match "0.001 s", error.message, "the outer one's"
    assert_raises(Reactor::DeadlineExceeded) { in_fiber { Reactor.deadline(1, raises: false) { raise Reactor::DeadlineExceeded } } }
  end

  def test_a_deadline_moves
    got = in_fiber do
      Reactor.deadline(0.001) do |deadline|
        deadline.move(3600)
        sleep 0.002
        assert_operator deadline.left, :>, 3500
        deadline.move(0.001)
        sleep
      end
    rescue Reactor::DeadlineExceeded => error
      error.message
    end
    assert_match(/\Athe block did not finish within 0\.001 s/, got)
  end

  def test_a_deadline_inside_one_that_moves_keeps_its_limit
    log = []
    in_fiber do
      Reactor.deadline(0.001) do |outer|
        Reactor.deadline(0.002) do |inner|
          outer.move(3600)
          log << (inner.left <= 0.002)
          sleep
        rescue Reactor::Cancelled
          inner.move(3600)
          log << (inner.left <= 0.002)
          raise
        end
      rescue Reactor::DeadlineExceeded => error
        log << error.message[/[\d.]+ s/] << outer.inspect
      end
    end
    assert_equal [true, true, "0.002 s"], log.first(3)
    assert_match(/\A#<Reactor::Deadline 3\d{3}\.\d s left>\z/, log.last)
  end

  def test_a_cancelled_that_a_program_raises_is_its_error
    assert_raises(Reactor::Cancelled) { run_plain { Reactor.run { raise Reactor::Cancelled } } }
  end

  def test_a_deadline_of_another_fiber_moves_and_one_that_has_ended_does_not
    in_fiber do
      moved = nil
      Fiber.schedule { Reactor.deadline(3600) { |deadline| moved = deadline; sleep } rescue moved = :over }
      moved.move(0)
      sleep 0 until moved == :over
      kept = Reactor.deadline(1) { |deadline| deadline }
      assert_raises(RuntimeError) { kept.move(1) }
      assert_raises(TypeError) { Reactor.deadline(1) { |deadline| deadline.move(nil) } }
      assert_nil Reactor.deadline(nil) { |deadline| deadline }
    end
    run_plain { assert_raises(RuntimeError) { Reactor.deadline(1) { |deadline| deadline.move(1) } } }
  end

  # Each is cancelled while it waits; then, in a clause of its own, it outlasts a limit or a failure of an inner block.
  INNER = {
    unraised: ->(clause) { Reactor.deadline(0.03, raises: false, &clause) },
    deadline: ->(clause) { Reactor.deadline(0.03, &clause) },
    inside_another: ->(clause) { Reactor.deadline(0.02) { Reactor.deadline(0.03, &clause) } },
    group: ->(clause) { Reactor.group(timeout: 0.03) { clause.call } },
    task: ->(clause) { Reactor.deadline(0.03, raises: false) { Reactor.group { |group| group.async(&clause) } } },
    failing: ->(clause) { Reactor.group { |group| group.async { sleep 0.03; raise Failed }; clause.call } }
  }.freeze

  def test_an_inner_block_that_ends_in_a_clause_of_an_ending_does_not_stop_the_ending
    INNER.each do |name, inner|
      log = []
      in_fiber do
        Reactor.group do |group|
          task = group.async do
            begin
              inner.call(proc { begin; sleep; ensure; log << :cancelled; sleep 0.05; end })
            rescue StandardError => error
              log << error.class
            end
            log << :goes_on
          end
          sleep 0.001
          task.cancel(:why)
          task.value
          log << task.state << task.reason
        end
      end
      assert_equal %i[cancelled cancelled why], log, name
    end
  end

  def test_a_wait_for_a_condition_variable_ends_with_the_mutex_locked
    endings = {
      limit: ->(wait) { Reactor.deadline(0.003, raises: false, &wait) },
      timeout: ->(wait) { Timeout.timeout(0.003) { wait.call } rescue Timeout::Error },
      cancel: ->(wait) { Reactor.group { |group| task = group.async(&wait); sleep 0.003; task.cancel } },
      twice: ->(wait) { assert_raises(Reactor::DeadlineExceeded) { Reactor.deadline(0.003) { Reactor.deadline(0.001, raises: false, &wait); sleep } } },
      interrupt: ->(wait) { waiter = Fiber.schedule { wait.call rescue Failed }; sleep 0.003; Fiber.scheduler.fiber_interrupt(waiter, Failed.new) }
    }
    endings.each do |name, ending|
      mutex, condition, owned = Mutex.new, ConditionVariable.new, nil
      in_fiber do
        Fiber.schedule { sleep 0.002; mutex.synchronize { condition.signal; sleep 0.01 } }
        ending.call(proc { mutex.synchronize { begin; condition.wait(mutex); ensure; owned = mutex.owned?; end } })
        sleep 0.001 while owned.nil? || mutex.locked?
        assert owned, name
      end
    end
  end

  def test_a_monitor_is_not_lost_when_a_wait_for_its_condition_is_interrupted
    monitor = Monitor.new
    condition = monitor.new_cond
    in_fiber do
      other = Fiber.schedule { sleep 0.001; monitor.synchronize { condition.signal; sleep 0.01 } }
      Reactor.deadline(0.003, raises: false) { monitor.synchronize { condition.wait } }
      sleep 0.001 while other.alive?
      refute_predicate monitor, :mon_locked?
    end
  end
end

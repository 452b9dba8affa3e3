# frozen_string_literal: true

require_relative "helper"
require "json"
require "stringio"
require "tempfile"
require "tmpdir"

# Observation of the event loop: counters, the list of fibers, stalls, traces, deadlocks.
class TestInspection < ReactorTest
  # --- stats -----------------------------------------------------------------------------------------------------

  STATS = File.read(File.join(LIB, "reactor/observe/inspection.rb"))[/# Counters since.*?def stats/m]

  # A difference of two readings subtracts every number except gauges.
  def test_the_documented_gauges_are_those_of_health
    gauges = STATS[/# Gauges:.*?(?=# Counters of the kernel)/m].scan(/^ *# - `(\w+)`: /) + STATS.scan(/^ *# - `(\w+)` \(gauge\): /)
    assert_equal gauges.flatten.map(&:to_sym).sort, Reactor::Health::GAUGES.sort
  end

  def test_every_key_of_stats_is_documented
    documented = STATS.scan(/^ *# - `(\w+)`(?: \(gauge\))?: /).flatten.map(&:to_sym)
    run_scheduler do |scheduler|
      Fiber.schedule { sleep 0.001 }
      stats = scheduler.stats
      assert stats.values.all?(Integer)
      assert_equal [], stats.keys - documented
      assert_equal [], documented - stats.keys
    end
  end

  def test_stats_count_fibers_and_timers
    r, w = pipe
    run_scheduler do |scheduler|
      3.times { Fiber.schedule { r.readpartial(1) } }
      sleeper = Fiber.schedule { sleep 60 }
      stats = scheduler.stats
      assert_equal({ fibers: 4, live: 4, parked: 4, timers: 1, stalls: 0 }, stats.slice(:fibers, :live, :parked, :timers, :stalls))
      w << "abc"
      sleeper.kill
      scheduler.run
      stats = scheduler.stats
      assert_equal({ live: 0, parked: 0, timers: 0 }, stats.slice(:live, :parked, :timers))
      assert_operator stats[:sleeps], :<=, stats[:turns]
    end
  end

  # --- fibers ----------------------------------------------------------------------------------------------------

  def test_fibers_lists_what_each_fiber_waits_for_since_when_and_where
    r, = pipe
    other, = pipe
    a, = pair
    waiting = {}
    run_scheduler do |scheduler|
      queue = Queue.new
      waiting = {
        read: Fiber.schedule { r.read(1) },
        write: Fiber.schedule { fill(a); a.wait_writable },
        many: Fiber.schedule { IO.select([r, other]) },
        sleep: Fiber.schedule { sleep 60 },
        forever: Fiber.schedule { sleep },
        pop: Fiber.schedule { queue.pop },
        limited: Fiber.schedule { queue.pop(timeout: 60) }
      }
      seen = waiting.transform_values { |fiber| scheduler.fibers.find { |sighting| sighting.fiber.equal?(fiber) } }
      assert_equal [:waiting], seen.values.map(&:state).uniq
      expected = {
        read: [:io, r, IO::READABLE, false], write: [:io, a, IO::WRITABLE, false], many: [:io, nil, 0, false],
        sleep: [:sleep, nil, 0, false], forever: [:sleep, nil, 0, true],
        pop: [:block, nil, 0, true], limited: [:block, nil, 0, false]
      }
      assert_equal(expected, seen.transform_values { |s| [s.hook, s.io, s.events, s.forever] })
      seen.each_value do |sighting|
        assert_operator sighting.seconds, :>=, 0
        assert_match(/test_inspection\.rb:\d+/, sighting.backtrace.join("\n"))
        assert_equal [], sighting.backtrace.grep(%r{lib/reactor/(?!patches/virtual_time)}), "frames of this library are left out"
      end
      assert_match(/waiting \d+\.\d+ s for #{Regexp.escape(r.inspect)} to be readable\n.*test_inspection\.rb/m, seen[:read].to_s)
      sleep ms(5)
      later = scheduler.fibers.find { |sighting| sighting.fiber.equal?(waiting[:read]) }
      assert_operator later.seconds - seen[:read].seconds, :>=, ms(5)
    ensure
      waiting.each_value(&:kill)
    end
  end

  def test_the_place_and_the_backtrace_of_a_fiber_name_lines_of_the_program
    r, = pipe
    done = Thread::Queue.new
    run_scheduler do
      fibers = [Fiber.schedule { Reactor.offload { done.pop } }, Fiber.schedule { IO.select([r]) }, Fiber.schedule { sleep 60 },
                Fiber.schedule { Queue.new.pop }, Fiber.schedule { Reactor.group { |group| group.async { sleep 60 } } }]
      Fiber.schedule do
        assert_equal [], fibers.map { |fiber| Reactor::FiberStatus.place(fiber) }.grep_v(/test_inspection\.rb:\d+:in /)
        assert_equal [], fibers.flat_map { |fiber| Reactor::FiberStatus.backtrace(fiber) }.grep(%r{/lib/reactor/})
        done << true
        fibers.drop(1).each(&:kill)
      end
    end
  end

  def test_a_dump_shows_a_fiber_whose_file_has_a_name_that_is_no_valid_text
    run_scheduler do |scheduler|
      fiber = eval("Fiber.schedule { sleep 60 }", binding, "\xFF.rb", 7)
      Fiber.schedule do
        assert_includes scheduler.dump.b, "\xFF.rb:7:in ".b
        assert_includes Reactor::FiberStatus.place(fiber).b, "\xFF.rb:7:in ".b
        fiber.kill
      end
    end
  end

  def test_fibers_lists_running_ready_and_away_fibers
    run_scheduler do |scheduler|
      away = Fiber.schedule { Enumerator.new { |yielder| sleep 60; yielder << 1 }.next }
      first = nil
      Fiber.schedule do
        woken = Fiber.schedule { first = Fiber.current; Queue.new.pop }
        scheduler.unblock(nil, woken)
        states = scheduler.fibers.to_h { |sighting| [sighting.fiber, sighting.state] }
        assert_equal :running, states[Fiber.current]
        assert_equal :ready, states[woken]
        assert_equal :away, states[away]
        assert_equal [:sleep], scheduler.fibers.map(&:hook).compact, "the fiber of the Enumerator"
        [woken, away].each(&:kill)
      end
      scheduler.run
      refute_predicate first, :alive?
    end
  end

  def test_fibers_may_be_called_from_another_thread
    run_scheduler do |scheduler|
      fiber = Fiber.schedule { sleep 60 }
      looker = Thread.new { eventually { scheduler.fibers.find { |sighting| sighting.fiber.equal?(fiber) } } }
      Fiber.schedule do
        sighting = looker.value
        assert_equal :sleep, sighting.hook
        assert_match(/sleep/, sighting.backtrace.join)
        fiber.kill
      end
    end
  end

  # --- dump ------------------------------------------------------------------------------------------------------

  def test_dump_lists_every_scheduler_of_the_ractor
    out = StringIO.new
    run_scheduler do |scheduler|
      other = Thread.new do
        Fiber.set_scheduler(Reactor::Scheduler.new)
        Fiber.schedule { sleep 60 }
        Thread.current.thread_variable_set(:ready, true) # the fiber waits now
        Fiber.scheduler.run
      end
      Fiber.schedule do
        sleep 0.001 until other.thread_variable?(:ready)
        assert_nil Reactor.dump(out)
        other.kill.join
      end
      scheduler.run
      assert_match(/process #{Process.pid}/, out.string)
      assert_equal 2, out.string.scan(/^#<Reactor::\S+ \w+, 1 live>/).size, out.string
      assert_match(/waiting .* asleep\n/, out.string)
    end
  end

  def test_dump_on_writes_at_a_signal
    out = run_child(<<~'RUBY')
      seen = false
      trap("USR2") { seen = true }
      Reactor.dump_on(:USR2)
      r, w = IO.pipe
      Fiber.set_scheduler(Reactor::Scheduler.new)
      Fiber.schedule { r.read }
      Fiber.schedule { Process.kill(:USR2, $$); sleep 0.001 until seen; w.close; puts "handled before: #{seen}" }
    RUBY
    assert_equal "handled before: true\n", out.out
    assert_match(/waiting .* for #<IO:fd \d+> to be readable\n.*-e:7:in/m, out.err)
    assert_match(/running\n.*kill/m, out.err)
    assert_raises(ArgumentError) { Reactor.dump_on(:SEGV) }
  end

  # In the dump of a signal handler, a wait would never end.
  def test_a_dump_names_an_io_and_a_fiber_without_the_programs_inspect
    r, = pipe
    own = Class.new(IO) { def inspect = raise("asked") }
    io = own.for_fd(r.fileno, autoclose: false)
    run_scheduler do |scheduler|
      fiber = Fiber.schedule { io.read(1) }
      watcher = scheduler.on_ready(io) { flunk }
      def fiber.inspect = raise("asked")
      assert_match(/^  #<Fiber:.*test_inspection\.rb:\d+ .* for #<#<Class:.*>:fd #{r.fileno}> to be readable$/, scheduler.dump)
      assert_includes watcher.inspect, "fd #{r.fileno}"
    ensure
      watcher.cancel
      fiber.kill
    end
  end

  # --- stalls ----------------------------------------------------------------------------------------------------

  # The stalls detected while the block runs in a fiber. On a loaded machine the loop may stall even without the block.
  def stalling(limit)
    stalls = []
    before = Thread.list
    run_plain do
      scheduler = Reactor::Scheduler.new(stall: limit, on_stall: ->(stall) { stalls << stall })
      Fiber.set_scheduler(scheduler)
      Fiber.schedule { sleep 0.01 }
      Fiber.schedule { sleep 0.001; yield stalls }
      scheduler.run
      assert eventually { scheduler.stats[:stalls] == stalls.count { |stall| !stall.over } }, -> { stalls.inspect }
    end
    assert eventually { surplus_threads(before).empty? }, "the watching thread is left"
    stalls
  end

  # Both reports of a fiber that blocks the loop in the given place: the stall and its end. If the stall was reported in
  # another place or not at all, the fiber blocks the loop again.
  def reports(place)
    fiber = number = nil
    stalls = stalling(0.05) do |list|
      fiber = Fiber.current
      until (number = list.index { |stall| stall.backtrace.join("\n").match?(place) })
        yield
        sleep 0.05
      end
      sleep 0.001 until list.size > number + 1
    end
    assert_same fiber, stalls[number].fiber
    stalls[number, 2]
  end

  def test_a_fiber_that_computes_is_reported_as_a_stall
    found, over = reports(/helper\.rb:\d+:in .*compute'/) { compute(0.3) }
    refute found.over
    assert_operator found.seconds, :>=, 0.05
    assert over.over
    assert_same found.fiber, over.fiber
    assert_operator over.seconds, :>, found.seconds
    assert_match(/has held the loop for \d+\.\d+ s\n    .*compute'/m, found.to_s)
    assert_match(/ended after \d+\.\d+ s/, over.to_s)
  end

  # The watching thread gets the GVL only when the fiber waits.
  def test_c_code_that_keeps_the_gvl_is_reported_as_a_stall
    fiber = nil
    stalls = stalling(0.02) do |list|
      fiber = Fiber.current
      numbers = Array.new(200_000) { rand }
      until list.any? { |stall| stall.over && stall.fiber.equal?(fiber) } || numbers.size > 20_000_000
        numbers.sort
        sleep 0.01
        numbers.concat(numbers)
      end
    end
    found, over = stalls.select { |stall| stall.fiber.equal?(fiber) }
    refute found.over
    assert_operator found.seconds, :>=, 0.02
    assert_match(/test_inspection\.rb/, found.to_s)
    assert over.over
  end

  def test_c_code_in_which_a_fiber_ends_is_reported_as_its_stall
    fibers = []
    stalls = stalling(0.02) do |list|
      numbers = Array.new(200_000) { rand }
      until list.any? { |stall| fibers.include?(stall.fiber) } || numbers.size > 20_000_000
        fibers << Fiber.schedule { sleep 0.001; numbers.sort }
        sleep 0.01 while fibers.last.alive?
        numbers.concat(numbers)
      end
    end
    assert(stalls.any? { |stall| fibers.include?(stall.fiber) }, -> { stalls.inspect })
  end

  # Seconds of C code that keeps the GVL, and the code.
  def sorting
    numbers = Array.new(200_000) { rand }
    numbers.concat(numbers) until numbers.size > 5_000_000 || (clock.then { |before| numbers.sort && clock - before }) > 0.1
    -> { numbers.sort }
  end

  # The watching thread gets the GVL only when the run waits for it to end, or when the fiber has ended.
  def test_c_code_before_the_first_wait_and_after_the_last_one_is_reported_as_a_stall
    sort = sorting
    { "first" => -> { sort.(); sleep 0.05 }, "last" => -> { sleep 0.05; sort.() }, "all" => sort }.each do |what, block|
      fiber, stalls = nil, []
      run_plain do
        Reactor.run(stall: 0.02, on_stall: ->(stall) { stalls << stall }) { fiber = Fiber.current; block.() }
      end
      ours = stalls.select { |stall| stall.fiber.equal?(fiber) }
      assert_equal [false, true], ours.map(&:over).uniq, -> { "#{what}: #{stalls.inspect}" }
      assert_operator ours.map(&:seconds).max, :>, 0.02, what
    end
  end

  def test_what_the_program_computes_before_it_starts_a_fiber_is_not_that_fibers_stall
    sort, fiber, stalls = sorting, nil, []
    run_plain do
      Fiber.set_scheduler(Reactor::Scheduler.new(stall: 0.02, on_stall: ->(stall) { stalls << stall }))
      Fiber.schedule { sleep 0.001 }
      sort.()
      fiber = Fiber.schedule { nil }
    end
    refute(stalls.any? { |stall| stall.fiber.equal?(fiber) }, -> { stalls.inspect })
    assert(stalls.any? { |stall| stall.fiber.nil? }, -> { stalls.inspect })
  end

  def test_a_reporter_that_never_returns_does_not_keep_the_run
    before = Thread.list
    run_plain { Reactor.run(stall: 0.01, on_stall: ->(_) { Thread.stop while true }) { Fiber.blocking { sleep 0.1 } } }
    assert_equal [], surplus_threads(before)
  end

  # A false stall would be found in every attempt, a stall of a loaded machine only in some.
  def test_an_idle_or_yielding_loop_is_not_a_stall
    turn_to = ->(limit) { sleep 0 while clock < limit }
    { idle: -> { sleep 0.25 }, busy: -> { turn_to.(clock + 0.25) } }.each do |what, act|
      times = 0
      assert eventually { times += 1; stalling(0.1) { act.() }.empty? }, "#{what}: stalls each of #{times} times"
    end
  end

  def test_stalls_are_written_to_stderr_without_on_stall
    said = run_child(<<~RUBY).err
      Reactor.run(stall: 0.02) do
        scheduler = Fiber.scheduler
        Fiber.blocking { sleep 0.001 until scheduler.stats[:stalls].positive? }
      end
    RUBY
    assert_match(/reactor: #<Fiber:.*has held the loop for \d+\.\d+ s\n.*-e:4/m, said)
  end

  def test_a_dump_that_cannot_be_written_does_not_disturb_the_program
    assert_equal "before\ndone\n", child_says(<<~'RUBY')
      seen = false
      trap("USR2") { puts "before"; seen = true }
      Reactor.dump_on(:USR2)
      def (broken = Object.new).write(*) = raise(Errno::EPIPE)
      $stderr = broken
      Reactor.run { Process.kill(:USR2, $$); sleep 0.001 until seen }
      puts "done"
    RUBY
  end

  # --- traces ----------------------------------------------------------------------------------------------------

  def traced(**options, &block)
    path = File.join(Dir.tmpdir, "reactor-trace-#{Process.pid}.json")
    value = run_scheduler { |scheduler| scheduler.trace(path, **options) { block.call(scheduler) } }
    [JSON.parse(File.read(path)), value]
  ensure
    File.unlink(path) if path && File.exist?(path)
  end

  def test_a_trace_has_runs_waits_and_turns
    r, w = pipe
    line = __LINE__ + 2
    trace, value = traced do |scheduler|
      Fiber.schedule { r.read(1) }
      Fiber.schedule { sleep 0.02; w << "x" }
      Fiber.schedule { Enumerator.new { |yielder| sleep 0.001; yielder << 1 }.next }
      Fiber.schedule { sleep 0 }
      scheduler.run
      :value
    end
    assert_equal :value, value
    events = trace.fetch("traceEvents")
    slices = events.select { |event| event["ph"] == "X" }
    assert_equal %w[M X], events.map { |event| event["ph"] }.uniq.sort
    names = events.filter_map { |event| [event["tid"], event.dig("args", "name")] if event["name"] == "thread_name" }.to_h
    assert_equal "loop", names[0]
    assert_match(/reactor on #{Reactor.backend}\z/, events.find { |event| event["name"] == "process_name" }.dig("args", "name"))
    reader = names.key(names.values.grep(/test_inspection\.rb:#{line}\z/).first)
    life = slices.select { |slice| slice["tid"] == reader }.sort_by { |slice| slice["ts"] }
    assert_equal ["run", "wait: readable", "ready", "run"], life.map { |slice| slice["name"] }
    wait = life[1]
    assert_match(/fd #{r.fileno}/, wait.dig("args", "io"))
    assert_operator wait["dur"], :>=, 19_000, "microseconds"
    assert_equal [], ["wait: sleep", "wait: fibers"] - slices.map { |slice| slice["name"] }, "the root fiber waits for the fibers"
    turns = slices.select { |slice| slice["tid"].zero? }.map { |slice| slice["name"] }.uniq
    assert_includes turns, "turn"
    assert_equal [], turns - %w[sleep turn], "on a loaded machine the loop may never sleep"
    # Slices of one track must not overlap, not even by rounding: viewers nest overlapping ones.
    slices.group_by { |slice| slice["tid"] }.each_value do |list|
      list.sort_by { |slice| slice["ts"] }.each_cons(2) { |one, other| assert_operator one["ts"] + one["dur"], :<=, other["ts"] }
    end
    # Neither may runs, because only one fiber runs at a time.
    runs = slices.select { |slice| slice["name"] == "run" }.sort_by { |slice| slice["ts"] }
    runs.each_cons(2) { |one, other| assert_operator one["ts"] + one["dur"], :<=, other["ts"] + 0.002 }
  end

  def test_a_trace_tells_what_ended_the_wait_of_a_watcher
    a, b = pair
    trace, = traced do |scheduler|
      scheduler.on_ready(a) { a.readpartial(1) }
      scheduler.on_ready(b, timeout: 0.001) { nil }
      cancelled = scheduler.on_ready(a, IO::READABLE | IO::PRIORITY) { nil }
      scheduler.on_ready(b, transient: true) { nil }
      Fiber.schedule { cancelled.cancel; b.write("x") }
      scheduler.run
    end
    slices = trace["traceEvents"].select { |event| event["cat"] == "watcher" }
    begun, ended = slices.partition { |event| event["ph"] == "b" }
    names = begun.to_h { |slice| [slice["args"]["ended"], [slice["name"], slice["args"]["io"]]] }
    readable = ->(io) { ["wait: readable", io.inspect] }
    assert_equal({ "readable" => readable[a], "timeout" => readable[b], "still waits" => readable[b],
                   "cancelled, closed or reopened" => ["wait: readable or exceptional", a.inspect] }, names)
    assert_equal begun.map { |slice| slice["id"] }.sort, ended.map { |slice| slice["id"] }.sort
    starts = begun.to_h { |slice| [slice["id"], slice["ts"]] }
    assert(ended.all? { |slice| slice["ts"] >= starts[slice["id"]] })
  end

  def test_a_trace_counts_the_events_beyond_its_limit
    trace, = traced(limit: 10) do |scheduler|
      Fiber.schedule { 10.times { sleep 0 } }
      scheduler.run
    end
    assert_operator trace.dig("otherData", "moments_left_out"), :>, 10
  end

  def test_a_trace_is_written_if_the_block_raises_and_a_second_trace_is_refused
    path = File.join(Dir.tmpdir, "reactor-trace-#{Process.pid}.json")
    run_scheduler do |scheduler|
      error = assert_raises(RuntimeError) { scheduler.trace(path) { scheduler.trace(path) { flunk } } }
      assert_match(/already/, error.message)
      assert_kind_of Hash, JSON.parse(File.read(path))
      assert_equal 3, scheduler.trace(path) { 3 }
      assert_raises(Errno::ENOENT) { scheduler.trace("/nowhere/at/all") { flunk } }
      assert_raises(ArgumentError) { scheduler.trace(path) }
    end
  ensure
    File.unlink(path) if path && File.exist?(path)
  end

  def test_a_trace_is_not_written_to_a_descriptor
    r, w = pipe
    run_scheduler { |scheduler| assert_raises(TypeError) { scheduler.trace(w.fileno) { flunk } } }
    w << "open"
    assert_equal "open", r.readpartial(4)
  end

  # --- deadlocks -------------------------------------------------------------------------------------------------

  def test_a_deadlock_is_reported_with_the_fibers_and_what_they_wait_for
    child = run_child(<<~RUBY)
      one, two = Mutex.new, Mutex.new
      Fiber.set_scheduler(Reactor::Scheduler.new)
      Fiber.schedule { one.synchronize { sleep 0.001; two.lock } }
      Fiber.schedule { two.synchronize { sleep 0.001; one.lock } }
      Fiber.schedule { begin; Queue.new.pop; ensure puts "ensure"; end }
    RUBY
    assert_equal "ensure\n", child.out
    assert_match(/No live threads left\. Deadlock\? \(fatal\)|\(fatal\)/, child.err)
    assert_equal 2, child.err.scan(/(?:Mutex#|in `)lock'/).size, child.err
    refute_predicate child.status, :success?
  end

  def test_a_deadlock_in_a_thread_is_raised_in_the_joining_thread
    child = run_child(<<~RUBY)
      thread = Thread.new do
        Thread.current.report_on_exception = false
        Fiber.set_scheduler(Reactor::Scheduler.new)
        Fiber.schedule { mutex = Mutex.new; mutex.synchronize { ConditionVariable.new.wait(mutex) } }
        Fiber.schedule { Thread.main.join }
      end
      begin
        thread.join
      rescue Exception => error
        puts error.class, error.message.lines.first
      end
    RUBY
    assert_equal "fatal\nNo live threads left. Deadlock?\n", child.out, child.err
  end

  def test_a_deadlock_is_reported_whatever_the_methods_of_the_program_raise
    ["def fiber.inspect = raise", "def fiber.inspect = nil", "def fiber.backtrace = raise", "def semaphore.available = raise",
     "def semaphore.inspect = raise"].each do |override|
      child = run_child(<<~RUBY)
        semaphore = Reactor::Semaphore.new(1)
        begin
          Reactor.run do
            fiber = Fiber.schedule { semaphore.acquire { Queue.new.pop } }
            #{override}
            Queue.new.pop
          end
        rescue Exception => error
          puts error.class, error.message.lines.first
        end
      RUBY
      assert_equal "fatal\nNo live threads left. Deadlock?\n", child.out, override + child.err
    end
  end

  # In a child, because the thread of the test itself could wake the fibers. The loop checks for a deadlock after a tenth of
  # a second of sleep, and again after that. A program may give any name to a method of its own that sleeps.
  def test_a_sleeping_fiber_is_not_a_deadlock
    ["sleep", "sleep(nil)", "Sleeper.new.wait", "Mutex::Sleeper.new.sleep", "Mutex::Sleeper.new.synchronize"].each do |sleep|
      out = child_says(<<~RUBY) do |pid, line|
        class Sleeper
          def wait = sleep
          def synchronize = wait
        end
        class Mutex::Sleeper < Sleeper
          def sleep = super
        end
        Fiber.set_scheduler(scheduler = Reactor::Scheduler.new)
        other = Fiber.schedule { Queue.new.pop }
        fiber = Fiber.schedule { #{sleep}; other.kill; puts "woken" }
        trap(:USR1) { scheduler.unblock(nil, fiber) }
        puts "asleep"
      RUBY
        line.("asleep")
        sleep 0.4
        Process.kill(:USR1, pid)
      end
      assert_equal "asleep\nwoken\n", out, sleep
    end
  end

  # What keeps another thread waiting, and what wakes the fiber afterwards. Each wait that ends by itself lasts longer than the
  # loop sleeps before it checks for a deadlock.
  OTHER_THREADS = <<~'RUBY'
    def ractor(&block) = Ractor.new(&block)
    def result(ractor) = ractor.respond_to?(:value) ? ractor.value : ractor.take
    def signal_later(signal) = spawn(*shell("sleep 0.5; kill -#{signal} #{$$}"))

    def wait = sleep(0.5)

    CASES = {
      ractor_result: ->(q) { Thread.new { q << result(ractor { sleep 0.5; 1 }) } },
      ractor_message: ->(q) { Thread.new { ractor { sleep 0.5; Ractor.main.send(1) }; q << Ractor.receive } },
      ractor_on_a_worker: ->(q) { Thread.new { Thread.new { q << result(ractor { sleep 0.5; 1 }) }.join } },
      native_read: ->(q) { r, w = IO.pipe; spawn(*shell("sleep 0.5; echo 1"), out: w); w.close; Thread.new { q << r.gets.to_i } },
      process_wait: ->(q) { Thread.new { Process.wait(spawn(*shell("sleep 0.5"))); q << 1 } },
      flock_in_a_thread: lambda { |q|
        file = File.open(__FILE__)
        r, w = IO.pipe
        fork { File.open(__FILE__) { |mine| mine.flock(File::LOCK_EX); w.puts; sleep 0.5 } }
        r.gets
        Thread.new { file.flock(File::LOCK_EX); q << 1 }
      },
      another_scheduler: lambda { |q|
        Thread.new { Fiber.set_scheduler(Reactor::Scheduler.new); Fiber.schedule { sleep 0.5; q << 1 } }
      },
      condition_variable_with_a_limit: ->(q) { Thread.new { m = Mutex.new; m.synchronize { ConditionVariable.new.wait(m, 0.5) }; q << 1 } },
      sleep: ->(q) { Thread.new { sleep 0.5; q << 1 } },
      sleep_of_another_name: ->(q) { Thread.new { wait; q << 1 } },
      pop_with_a_limit: ->(q) { Thread.new { Queue.new.pop(timeout: 0.5); q << 1 } },
      join_with_a_limit: ->(q) { t = Thread.new { sleep }; Thread.new { t.join(0.5); q << 1 } },
      sleep_and_a_trap: ->(q) { t = Thread.new { sleep; q << 1 }; trap(:USR1) { t.wakeup }; signal_later(:USR1) },
      queue_and_a_trap: ->(q) { trap(:USR1) { q << 1 } },
      mutex: ->(q) { m = Mutex.new.tap(&:lock); Thread.new { m.lock; q << 1 } },
      join: ->(q) { t = Thread.new { Queue.new.pop }; Thread.new { t.join; q << 1 } }
    }

    Warning[:experimental] = false
    require "tmpdir"
    # Where it cannot be known what a thread waits for, nothing ends a program that has deadlocked.
    cases = RUBY_DESCRIPTION.include?("+MN") ? CASES.except(:mutex, :join) : CASES
    answers = cases.flat_map do |name, wait|
      [:plain, :fiber].map do |mode|
        [name, mode, IO.popen("-") || begin
          $stdout.sync = true
          queue = Queue.new
          begin
            wait.call(queue)
            if mode == :plain
              print queue.pop
            else
              Fiber.set_scheduler(scheduler = Reactor::Scheduler.new)
              Fiber.schedule { print queue.pop }
              scheduler.run
            end
          rescue Exception => error
            print error.class
          end
          exit!
        end]
      end
    end
    puts answers.map { |name, mode, io| [name, mode, io.read].join(" ") }
  RUBY
  private_constant :OTHER_THREADS

  def test_a_deadlock_is_reported_only_where_plain_ruby_reports_one(env = {})
    needs_fork
    file = Tempfile.create(["cases", ".rb"])
    file.write(OTHER_THREADS)
    file.close
    rows = child_says("load ARGV[0]", file.path, env: env).lines(chomp: true).map(&:split)
    plain, fiber = rows.partition { |row| row[1] == "plain" }.map { |half| half.to_h { |name, _, answer| [name, answer] } }
    assert_equal plain, fiber
    assert_equal %w[1 fatal], plain.values.uniq.sort
  ensure
    File.unlink(file.path)
  end

  # These threads seem to wait for ever whenever they wait. (Those that end crash Ruby before 4.0: see test_ractors.rb.)
  if RUBY_VERSION >= "4.0"
    def test_no_deadlock_is_reported_among_mn_threads
      env = { "RUBY_MN_THREADS" => "1" }
      skip "this Ruby has no M:N threads" unless IO.popen([env, RbConfig.ruby, "-v"], &:read).include?("+MN")
      test_a_deadlock_is_reported_only_where_plain_ruby_reports_one(env)
    end
  end

  def test_no_deadlock_is_reported_for_a_sleeping_thread_of_a_ractor
    skip "Ruby 3.3 has no way to keep a thread on its native one" if RUBY_VERSION < "3.4"
    out = child_says(<<~'RUBY')
      Warning[:experimental] = false
      ractor = Ractor.new { Reactor.run { [Thread.new { sleep 0.5; 1 }.value, Thread.new { Queue.new.pop(timeout: 0.5); 2 }.value] } }
      p ractor.respond_to?(:value) ? ractor.value : ractor.take
    RUBY
    assert_equal "[1, 2]\n", out
  end

  # A thread that Mutex#unlock has woken has the status of its wait until it has the GVL, which this thread has.
  def test_a_woken_thread_that_has_not_run_yet_is_not_idle
    mutex = Thread::Mutex.new.tap(&:lock)
    thread = until_asleep(Thread.new { mutex.synchronize { nil } })
    assert Reactor::Deadlock.idle?(thread)
    mutex.unlock
    refute Reactor::Deadlock.idle?(thread)
    thread.join
    refute Reactor::Internal.woken?(thread)
  end

  def test_a_deadlock_in_ensure_is_ended
    child = run_child(<<~RUBY)
      Fiber.set_scheduler(Reactor::Scheduler.new)
      Fiber.schedule { begin; Queue.new.pop; ensure Queue.new.pop; end }
    RUBY
    assert_match(/Deadlock/, child.err)
    refute_predicate child.status, :success?
  end
end

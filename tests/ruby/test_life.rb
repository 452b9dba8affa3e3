# frozen_string_literal: true

require_relative "helper"

# Forks, daemons, Ractors, many threads, ends with work left, and memory over time.
class TestLife < ReactorTest
  # --- fork -----------------------------------------------------------------------------------------------------------

  def test_daemon_continues_in_the_forked_process
    needs_fork
    [false, true].each do |inside|
      r, w = IO.pipe
      code = <<~'RUBY'
        out = IO.for_fd(ARGV[0].to_i)
        out.sync = true
        life = lambda do
          Process.daemon(true, true)
          Thread.new do
            Fiber.set_scheduler(Reactor::Scheduler.new)
            Fiber.schedule { sleep 0.01; out << "daemon " }
          end.join
          out << "ends"
        end
        Fiber.set_scheduler(Reactor::Scheduler.new)
        Fiber.schedule { sleep 0.02; out << "not here " } # belongs to the process that daemon ends
        ARGV[1] == "true" ? Fiber.schedule(&life) : life.call
      RUBY
      run_child(code, w.fileno, inside, options: { w => w })
      w.close
      assert r.wait_readable(TEST_TIMEOUT)
      assert_equal "daemon ends", r.read, "inside a fiber: #{inside}"
    ensure
      [r, w].each(&:close)
    end
  end

  # --- threads and Ractors --------------------------------------------------------------------------------------------

  def test_a_scheduler_in_each_of_many_threads
    ring = Array.new(10) { Queue.new }
    run_plain do
      threads = ring.each_index.map do |i|
        Thread.new do
          Fiber.set_scheduler(Reactor::Scheduler.new)
          Fiber.schedule { 50.times { ring[(i + 1) % ring.size] << ring[i].pop + 1 } }
          3.times { |n| Fiber.schedule { 10.times { sleep 0.0005 * n } } }
        end
      end
      ring.first << 0
      threads.each(&:join)
    end
    assert_equal 500, ring.first.pop
  end

  # With M:N threads Ruby moves threads between native threads. Threads with a scheduler must stay on their native thread on
  # Ruby 3.4, and must not on 4.0: otherwise Ruby crashes.
  # No shared thread ends here, and the process ends by exit!. On 3.4 the VM may die ("[BUG] unreachable") as a shared thread
  # ends while another thread is locked to its native one, without a scheduler as well.
  def test_schedulers_in_mn_threads
    mn = { "RUBY_MN_THREADS" => "1" }
    skip "this Ruby has no M:N threads" unless IO.popen([mn, RbConfig.ruby, "-v"], &:read).include?("+MN")
    skip "this Ruby cannot keep a thread on its native thread" if RUBY_VERSION < "4.0" && !Thread.new { Reactor::Internal.lock_native_thread }.value
    out = child_says(<<~'RUBY', __FILE__, env: mn)
      require "socket"
      file = File.read(ARGV[0])
      Array.new(3) { Thread.new { loop { sleep 0.0002 } } } # they move between native threads
      threads = Array.new(4) do
        Thread.new do
          done = []
          Fiber.set_scheduler(Reactor::Scheduler.new)
          pairs = Array.new(3) { UNIXSocket.pair }
          questions, answers = Queue.new, Queue.new
          Thread.new { loop { questions.pop.then { |i| sleep 0.0002; answers << i } } }
          pairs.each do |ours, theirs|
            Fiber.schedule { while (text = theirs.readpartial(9)) != "end" do theirs.write(text) end }
            Fiber.schedule do
              done << (0...50).all? { |i| ours.write("#{i}"); ours.readpartial(9) == "#{i}" }
              ours.write("end")
            end
          end
          Fiber.schedule { 20.times { sleep 0.0005 }; done << true }
          Fiber.schedule { done << (0...20).all? { File.read(ARGV[0]) == file } }
          Fiber.schedule { done << (0...20).all? { |i| questions << i; answers.pop == i } }
          Fiber.scheduler.run
          pairs.flatten.each(&:close)
          done
        end
      end
      threads.each { |thread| p thread.value }
      $stdout.flush
      exit!(true)
    RUBY
    assert_equal "#{[true] * 6}\n" * 4, out
  end

  # What the first of them makes, it makes under a lock. A collection of garbage meanwhile waits for the other Ractor.
  def test_two_ractors_that_use_the_library_first_do_not_deadlock
    5.times do
      out = child_says(<<~'RUBY')
        Warning[:experimental] = false
        ractors = Array.new(2) do
          Ractor.new do
            Ractor.receive
            GC.stress = true
            Reactor.instance_eval { const_get(:Internal) }.schedulers
            GC.stress = false
            :done
          end
        end
        ractors.each { |ractor| ractor.send(1) }
        p ractors.map { |ractor| ractor.respond_to?(:value) ? ractor.value : ractor.take }
      RUBY
      assert_equal "[:done, :done]\n", out
    end
  end

  # Before Ruby 4.0, all Ractors share a pool of fiber stacks without a lock, so Ractors that make fibers at the same time crash
  # even without a scheduler. There they run one after the other.
  def test_a_scheduler_in_each_of_two_ractors
    out = child_says(<<~'RUBY')
      require "socket"
      require "timeout"
      Warning[:experimental] = false
      value = ->(ractor) { ractor.respond_to?(:value) ? ractor.value : ractor.take }
      results = Array.new(2) do |number|
        ractor = Ractor.new(number) do |own|
          log = []
          Fiber.set_scheduler(Reactor::Scheduler.new)
          a, b = UNIXSocket.pair
          r, = pipe = IO.pipe
          queue = Queue.new
          Fiber.schedule { log << a.readpartial(9) }
          Fiber.schedule { log << queue.pop }
          Fiber.schedule { sleep 0.01; b << "bytes"; queue << :item }
          Fiber.schedule { Timeout.timeout(0.005) { sleep } rescue log << $!.class }
          Fiber.schedule { r.readpartial(1) rescue log << $!.class }
          Fiber.schedule { sleep 0.02; pipe.each(&:close) }
          Fiber.schedule { log << Process.wait2(spawn(*shell("exit 4")))[1].exitstatus }
          Fiber.scheduler.run
          [own, Reactor.backend, log.map(&:to_s).sort]
        end
        RUBY_VERSION < "4.0" ? value.(ractor) : ractor
      end
      results.each { |result| p(result.is_a?(Ractor) ? value.(result) : result) }
    RUBY
    expected = Array.new(2) { |number| [number, BACKEND, ["4", "IOError", "Timeout::Error", "bytes", "item"]].inspect }
    assert_equal expected, out.lines(chomp: true)
  end

  def test_a_fiber_of_a_ractor_waits_for_a_lock_and_stops_no_other_fiber
    out = child_says(<<~'RUBY')
      require "tempfile"
      Warning[:experimental] = false
      file = Tempfile.create("lock")
      file.flock(File::LOCK_EX)
      ractor = Ractor.new(file.path) do |path|
        Fiber.set_scheduler(Reactor::Scheduler.new)
        granted = nil
        waiting = Fiber.schedule { File.open(path) { |mine| granted = [mine.flock(File::LOCK_EX)] } }
        Fiber.schedule do
          rows = -> { Reactor::FiberStatus.rows(Fiber.scheduler).select { |row| row.fiber.equal?(waiting) } }
          sleep 0.001 until (row = rows.call.find { |row| row.state == :waiting })
          Ractor.main.send(row.hook)
          sleep 0.001 until granted
        end
        Fiber.scheduler.run
        granted
      end
      p Ractor.receive
      file.flock(File::LOCK_UN)
      p ractor.respond_to?(:value) ? ractor.value : ractor.take
      File.unlink(file.path)
    RUBY
    # By a thread, except where Ruby moves the threads of a Ractor between native ones.
    by_thread = RUBY_VERSION >= "3.4"
    assert_equal "#{by_thread ? ":block" : ":sleep"}\n[0]\n", out
  end

  def test_every_constant_of_the_library_is_shareable_but_for_a_method_of_rubys
    names = Dir[File.join(LIB, "**/*.rb")].flat_map { |path| File.read(path).scan(/^ *(?:(?:class|module) )?([A-Z]\w*)\b(?: =| <|$)/) }.flatten.uniq
    left, seen, found = [Reactor], [], []
    while (place = left.pop)
      seen << place
      names.select { |name| place.const_defined?(name, false) }.each do |name|
        value = place.const_get(name, false)
        left << value if value.is_a?(Module) && value.name.to_s.start_with?("Reactor") && !seen.include?(value)
        found << "#{place}::#{name}" unless Ractor.shareable?(value)
      end
    end
    assert_empty found
    assert_operator seen.size, :>, 30, "is this test blind?"
  end

  # If two Ractors call Module#prepend on one class, Ruby loses modules or crashes: in half the runs with 1,000 classes.
  def test_concurrent_patching_by_ractors_patches_each_class_once
    out = child_says(<<~RUBY)
      Warning[:experimental] = false
      COUNT = 1000
      COUNT.times do |number|
        Object.const_set("Place\#{number}", Class.new { def depth = 0 })
        3.times { |i| Object.const_set("Part\#{i}_\#{number}", Module.new { def depth = super + 1 }) }
        Object.const_set("Set\#{number}", Module.new).module_eval <<~CODE
          def self.install = Place\#{number}.prepend(Part0_\#{number}).prepend(Part1_\#{number}).prepend(Part2_\#{number})
        CODE
      end
      ractors = Array.new(3) do
        Ractor.new do
          Ractor.main.send(:there)
          at = Ractor.receive
          nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < at
          Array.new(COUNT) do |number|
            Reactor.const_get(:Patches).install(Object.const_get("Set\#{number}"))
            Object.const_get("Place\#{number}").new.depth
          end.tally
        end
      end
      3.times { Ractor.receive }
      at = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 0.01 # all begin at this moment
      ractors.each { |ractor| ractor.send(at) }
      ractors.each { |ractor| p(ractor.respond_to?(:value) ? ractor.value : ractor.take) }
    RUBY
    assert_equal ["{3=>1000}"] * 3, out.delete(" ").lines(chomp: true)
  end

  def test_the_patch_lock_can_be_waited_for_interrupted_and_taken_in_a_forked_child
    skip "plain Ruby locks a file" unless Reactor::Internal.respond_to?(:lock_patches)
    out = child_says(<<~'RUBY')
      internal = Reactor.const_get(:Internal)
      waits = ->(thread) { sleep 0.001 until thread.status == "sleep" }
      internal.lock_patches
      raised, killed, waiting = Array.new(3) { Thread.new { internal.exclusively { :locked } } }.each(&waits)
      raised.report_on_exception = false
      raised.raise("raised")
      p((raised.value rescue $!.message))
      p killed.kill.value
      child = fork { internal.exclusively { exit!(7) } }
      p Process.wait2(child).last.exitstatus
      p waiting.alive?
      internal.unlock_patches
      p waiting.value
      p Array.new(2) { internal.lock_patches }
    RUBY
    assert_equal ['"raised"', "nil", "7", "true", ":locked", "[true, false]"], out.lines(chomp: true)
  end

  # Outside of the main Ractor Ruby moves threads between native threads unless told not to; see docs/performance.md.
  def test_a_fiber_waits_for_threads_in_a_ractor
    skip "Ruby 3.3 has no way to keep a thread on its native one" if RUBY_VERSION < "3.4"
    out = child_says(<<~'RUBY')
      Warning[:experimental] = false
      ractor = Ractor.new do
        log = []
        Fiber.set_scheduler(Reactor::Scheduler.new)
        50.times { |i| Fiber.schedule { log << Thread.new { sleep 0.001; i }.value } }
        Fiber.scheduler.run
        log.sort
      end
      p((ractor.respond_to?(:value) ? ractor.value : ractor.take) == [*0...50])
    RUBY
    assert_equal "true\n", out
  end

  # --- ends -----------------------------------------------------------------------------------------------------------

  def test_ensure_clauses_of_cancelled_fibers_may_do_io
    cancelled_fibers_write_to_each_other { next }
  end

  # The fiber waits a second time while the root fiber is already waiting.
  def test_a_kill_while_another_fiber_than_the_root_polls_cancels_all_fibers
    cancelled_fibers_write_to_each_other(&:pop)
  end

  # Through a socket, in their ensure clauses: the thread is killed.
  def cancelled_fibers_write_to_each_other
    before = descriptors
    log, waiting, gate = Array.new(3) { Queue.new }
    thread = Thread.new do
      Fiber.set_scheduler(Reactor::Scheduler.new)
      a, b = UNIXSocket.pair
      Fiber.schedule do
        sleep
      ensure
        a.puts "bye"
        log << a.gets
        a.close
      end
      Fiber.schedule do
        yield gate
        waiting << Fiber.scheduler
        b.gets
      ensure
        log << b.gets # the kill interrupted the first gets
        b.puts "so long"
        b.close
        log << `echo child`
        log << Timeout.timeout(0.01) { sleep } rescue log << $!.class
      end
    end
    until_asleep(thread)
    gate << true
    scheduler = waiting.pop(timeout: TEST_TIMEOUT)
    assert eventually { scheduler.fibers.any? { |sighting| sighting.state == :waiting && sighting.hook == :io } }
    until_asleep(thread).kill
    join_or_fail(thread, TEST_TIMEOUT)
    assert_equal ["Timeout::Error", "bye\n", "child\n", "so long\n"], Array.new(log.size) { log.pop.to_s }.sort
    assert eventually { leaked_descriptors(before).empty? }, -> { leaked_descriptors(before).inspect }
  end

  IN_A_FIBER = [
    ->(&block) { block.call }, ->(&block) { Fiber.new(&block).resume },
    ->(&block) { Fiber.new { Enumerator.new { |items| items << block.call }.next }.resume },
    ->(&block) { Enumerator.new { |items| sleep 0; items << block.call }.next }
  ].freeze

  # A scheduler ended by one of its own fibers, or on behalf of one, would wait for that fiber.
  def test_a_fiber_cannot_end_its_own_scheduler
    log = []
    reader, writer = pipe
    run_scheduler do |scheduler|
      Fiber.schedule { log << reader.readpartial(1) }
      Fiber.schedule do
        %i[run close scheduler_close shutdown drain cancel].product(IN_A_FIBER) do |method, place|
          assert_raises(FiberError, method) { place.call { scheduler.public_send(method) } }
        end
        refute_predicate scheduler, :closed?
        sleep 0
        writer << "x"
      end
      scheduler.run
      log << scheduler.live
    end
    assert_equal ["x", 0], log
  end

  # Ruby removes the scheduler from the thread, whatever its hook has raised.
  def test_a_scheduler_that_one_of_its_fibers_removes_from_the_thread_continues
    log = []
    reader, writer = pipe
    run_scheduler do |scheduler|
      Fiber.schedule { log << reader.readpartial(1) }
      Fiber.schedule do
        sleep 0
        assert_raises(FiberError) { Fiber.set_scheduler(nil) }
        log << Fiber.scheduler
        writer << "x"
      end
      scheduler.run
      scheduler.close
    end
    assert_equal [nil, "x"], log
  end

  # --- nothing grows --------------------------------------------------------------------------------------------------

  # 20,000 descriptors (REACTOR_LONG=1: a million) opened, waited for and dropped; some closed, some left to the collector.
  def test_memory_stays_flat_over_many_descriptors
    needs_linux "resident memory from /proc"
    count = LONG ? 1_000_000 : 20_000
    out = child_says(<<~RUBY, count, within: LONG ? 600 : 60)
      rss = -> { 3.times { GC.start }; File.read("/proc/self/status")[/VmRSS:\\s+(\\d+)/, 1].to_i }
      Fiber.set_scheduler(Reactor::Scheduler.new)
      count = Integer(ARGV[0])
      life = lambda do |n|
        pairs = Array.new(100) { IO.pipe }
        IO.select(pairs.map(&:first), nil, nil, 0.00001)
        pairs.each_with_index { |pair, i| pair.each(&:close) unless (i % 10).zero? }
      end
      Fiber.schedule do
        (count / 400).times(&life)
        before = rss.()
        (count / 200).times(&life)
        puts rss.() - before
        puts Fiber.scheduler.stats[:timers]
      end
    RUBY
    grown, left = out.lines(chomp: true)
    assert_operator grown.to_i, :<, 5_000
    assert_equal "0", left, "timers"
  end

  # Where a strand (a fiber, or a thread of plain Ruby) is when it is killed.
  KILLED_INSIDE = {
    nothing: ->(&wait) { wait.call },
    enumerator: ->(&wait) { Enumerator.new { |_| wait.call }.next },
    waiting_enumerator: ->(&wait) { Enumerator.new { |_| begin; wait.call; ensure; sleep 0.001; end }.next },
    fiber: ->(&wait) { Fiber.new { wait.call }.resume },
    nested: ->(&wait) { Fiber.new { begin; Enumerator.new { |_| wait.call }.next; ensure; sleep 0.001; end }.resume },
    rescue: ->(&wait) { Fiber.new { wait.call rescue nil }.resume },
  }.freeze

  WAYS_TO_KILL = {
    kill: ->(fiber, scheduler) { fiber.kill; scheduler.run },
    kill_by_a_fiber: ->(fiber, scheduler) { Fiber.schedule { sleep 0.001; fiber.kill }; scheduler.run },
    cancel: ->(_, scheduler) { scheduler.cancel; scheduler.run },
    cancel_fiber: ->(fiber, scheduler) { Fiber.schedule { sleep 0.001; 2.times { scheduler.cancel_fiber(fiber, nil); sleep 0.001 } }; scheduler.run },
  }.freeze

  def killed_inside(inside, log)
    queue = Thread::Queue.new
    begin
      inside.call { queue.pop }
    ensure
      3.times { |i| sleep 0.001; log << i }
      log << queue.pop(timeout: 0.001)
      Thread.new { log << :joined }.join
    end
    log << :went_on
  end

  def test_the_ensure_clauses_of_a_killed_fiber_wait_wherever_it_was_killed
    KILLED_INSIDE.each do |name, inside|
      expected = []
      run_plain { until_asleep(Thread.new { killed_inside(inside, expected) }).kill.join }
      assert_equal [0, 1, 2, nil, :joined], expected, "plain Ruby, #{name}"
      WAYS_TO_KILL.each do |way, kill|
        log = []
        run_scheduler do |scheduler|
          fiber = Fiber.schedule { killed_inside(inside, log) }
          Fiber.schedule { sleep 0.0005 until log.include?(:joined) || !fiber.alive? }
          kill.call(fiber, scheduler)
        end
        assert_equal expected, log, "#{way} inside #{name}"
      end
    end
  end

  # An error ends the kill, and the fiber continues.
  def outliving_a_kill(log)
    begin
      begin
        yield
      ensure
        raise IOError
      end
    rescue IOError
      log << :rescued
    end
    Fiber.new { nil }.resume
    log << :went_on
  end

  # The error ends the kill of a thread. The VM repeats that of a fiber.
  def test_a_fiber_that_outlives_its_kill_is_killed_by_the_next_one_that_it_resumes_as_with_plain_fibers
    expected, home = [], Fiber.current
    Fiber.new { outliving_a_kill(expected) { home.transfer } }.tap(&:transfer).kill
    WAYS_TO_KILL.except(:cancel, :cancel_fiber).each do |way, kill|
      log = []
      run_scheduler { |scheduler| kill.call(Fiber.schedule { outliving_a_kill(log) { Thread::Queue.new.pop } }, scheduler) }
      assert_equal expected, log, way
    end
  end

  # The strand resumes a fiber whose ensure clause raises when the strand is killed there.
  def killed_around_an_error(log, &wait)
    Fiber.new do
      wait.call
    ensure
      log << :inner
      raise IOError
    end.resume
  rescue IOError
    log << :rescued
  ensure
    log << :outer
  end

  # The VM raises the kill again where the killed fiber resumed the other one. In a thread, the error would replace the kill.
  def test_an_error_of_a_fiber_that_a_killed_one_has_resumed_is_lost_as_with_plain_fibers
    expected, home = [], Fiber.current
    Fiber.new { killed_around_an_error(expected) { home.transfer } }.tap(&:transfer).kill
    WAYS_TO_KILL.except(:cancel).each do |way, kill|
      log = []
      run_scheduler do |scheduler|
        fiber = Fiber.schedule { killed_around_an_error(log) { Thread::Queue.new.pop } }
        Fiber.schedule { sleep 0.0005 while fiber.alive? }
        kill.call(fiber, scheduler)
      end
      assert_equal expected, log, way
    end
  end
end

# frozen_string_literal: true

require_relative "helper"
ReactorTest.optional "openssl"
require "stringio"
require "tempfile"
require "tmpdir"
require "reactor/testing"

# Scheduler#on_ready: a wait without a fiber.
class TestOnReady < ReactorTest
  # --- the block ---------------------------------------------------------------------------------------------------

  def test_a_fresh_fiber_runs_the_block_once_when_the_io_is_ready
    log = []
    fibers = nil
    run_scheduler do |scheduler|
      reading, writing = pair
      root = Fiber.current
      watcher = scheduler.on_ready(reading, timeout: 3600) do |events, io|
        log << [events, io.equal?(reading), Fiber.current.equal?(root), Fiber.current.blocking?, watcher.ended]
        log << [watcher.cancel, scheduler.stats[:timers]]
        io.readpartial(1)
      end
      fibers = scheduler.stats.values_at(:fibers, :live, :watchers)
      log << watcher.waiting?
      Fiber.schedule { sleep 0.01; log << :ready; writing << "ab" }
    end
    assert_equal [0, 0, 1], fibers
    assert_equal [true, :ready, [IO::READABLE, true, false, false, :ready], [false, 0]], log
  end

  def test_the_events_are_those_that_have_come
    found = {}
    run_scheduler do |scheduler|
      reading, writing = pair
      scheduler.on_ready(reading, IO::WRITABLE) { |events| found[:writable] = events }
      scheduler.on_ready(reading, IO::READABLE | IO::WRITABLE) { |events| found[:one] = events }
      other, further = pair
      further << "x"
      scheduler.on_ready(other, IO::READABLE | IO::WRITABLE) { |events| found[:both] = events }
      ended, gone = pair
      gone.close
      scheduler.on_ready(ended) { |events, io| found[:end] = [events, io.read] }
      writing.close_read
    end
    assert_equal({ writable: IO::WRITABLE, one: IO::WRITABLE, both: IO::READABLE | IO::WRITABLE, end: [IO::READABLE, ""] },
                 found.slice(:writable, :one, :both, :end))
  end

  def test_the_block_gets_nil_when_the_time_is_up
    log = []
    took = elapsed do
      run_scheduler do |scheduler|
        watcher = scheduler.on_ready(pair.first, timeout: 0.05) { |events| log << events << watcher.ended }
        scheduler.on_ready(pair.first, timeout: 0) { |events| log << events }
        ready, writing = pair
        writing << "x"
        scheduler.on_ready(ready, timeout: 0) { |events| log << [:ready_first, events] }
      end
    end
    assert_equal [nil, nil, [:ready_first, IO::READABLE], :timeout], log.sort_by(&:to_s)
    assert_operator took, :>=, 0.05
  end

  # Each is ready from the start, by its read buffer, so no kernel decides the order.
  def test_fibers_and_watchers_take_turns_in_the_order_in_which_they_became_ready
    log = []
    run_scheduler do |scheduler|
      ios = Array.new(3) { buffered }
      Fiber.schedule do
        scheduler.on_ready(ios[0]) { log << 0; sleep 0; log << :later }
        Fiber.schedule { sleep 0; log << 1 }
        scheduler.on_ready(ios[1]) { log << 2 }
        scheduler.on_ready(ios[2]) { log << 3 } # no second fiber: a fiber that starts others for long yields
        log << :first
      end
    end
    assert_equal [:first, 0, 1, 2, 3, :later], log
  end

  def test_watchers_that_are_always_due_stop_no_other_fiber
    rounds = 0
    slept = false
    run_scheduler do |scheduler|
      reading, writing = pair
      writing << "x"
      again = -> { scheduler.on_ready(reading) { rounds += 1; again.call unless slept } }
      again.call
      Fiber.schedule { sleep 0.02; slept = true }
    end
    assert slept
    assert_operator rounds, :>, 1
  end

  # --- what counts as ready ----------------------------------------------------------------------------------------

  # An IO with all its data in Ruby's read buffer.
  def buffered
    reading, writing = pair
    writing << "ab"
    assert_equal "a", Fiber.blocking { reading.getc }
    reading
  end

  def test_bytes_in_the_read_buffer_count_as_ready
    found = nil
    run_scheduler do |scheduler|
      io = buffered
      scheduler.on_ready(io) { |events| found = [events, io.read_nonblock(9)] }
      scheduler.on_ready(buffered, IO::WRITABLE) { |events| assert_equal IO::WRITABLE, events }
    end
    assert_equal [IO::READABLE, "b"], found
  end

  def tls_pair
    ours, theirs = tcp_pair
    server = OpenSSL::SSL::SSLSocket.new(ours, tls_context)
    client = OpenSSL::SSL::SSLSocket.new(theirs)
    accepting = Fiber.schedule { server.accept }
    client.connect
    Fiber.scheduler.yield while accepting.alive?
    [server, client]
  end

  def test_bytes_that_openssl_has_decrypted_count_as_ready
    log = []
    in_fiber do |scheduler|
      server, client = tls_pair
      client.write("abcd")
      log << server.sysread(1) # the rest of the record is OpenSSL's
      scheduler.on_ready(server) do |events, io|
        log << events << io.getc # and now Ruby's
        scheduler.on_ready(server) do |again|
          log << again << io.readpartial(9)
          scheduler.on_ready(server) { |later| log << later << io.readpartial(9) }
          client.write("e")
        end
      end
    end
    assert_equal ["a", IO::READABLE, "b", IO::READABLE, "cd", IO::READABLE, "e"], log
  end

  # OpenSSL's library has no public method for this, so another version may keep the bytes elsewhere.
  def test_bytes_that_another_version_of_openssl_has_decrypted_count_as_ready
    log = []
    in_fiber do |scheduler|
      server, client = tls_pair
      server.define_singleton_method(:instance_variable_get) { |name| name == :@rbuffer ? nil : super(name) }
      client.write("a\xffbc")
      log << server.getc # the rest of the record is Ruby's
      scheduler.on_ready(server) do |events, io|
        log << events << io.readpartial(9)
        scheduler.on_ready(server) { |later| log << later << io.readpartial(9) }
        client.write("e")
      end
    end
    assert_equal ["a", IO::READABLE, "\xffbc".b, IO::READABLE, "e"], log
  end

  def test_anything_with_to_io_can_be_watched
    reading, writing = pair
    object = Struct.new(:to_io).new(reading)
    found = nil
    run_scheduler do |scheduler|
      watcher = scheduler.on_ready(object) { |_, io| found = io }
      assert_same object, watcher.io
      writing << "x"
    end
    assert_same object, found
  end

  def test_a_regular_file_is_always_ready
    found = nil
    run_scheduler do |scheduler|
      file = track(Tempfile.new("watched"))
      scheduler.on_ready(file) { |events| found = events }
    end
    assert_equal IO::READABLE, found
  end

  def test_several_watchers_and_fibers_wait_for_one_io
    log = []
    run_scheduler do |scheduler|
      reading, writing = pair
      3.times { |i| scheduler.on_ready(reading) { log << i } }
      2.times { |i| Fiber.schedule { reading.wait_readable; log << 10 + i } }
      scheduler.on_ready(reading, IO::WRITABLE) { log << 20 }
      Fiber.schedule { sleep 0.001 until log == [20]; writing << "x" }
    end
    assert_equal [0, 1, 2, 10, 11, 20], log.sort
  end

  # The VM runs finalizers where it makes a fiber, and one that unlinks a Tempfile calls a hook (Ruby 3.4). Here, the code called
  # at that place stands in for the finalizer.
  def test_a_fiber_whose_wait_ends_in_a_finalizer_while_it_starts_a_watcher_continues
    said = child_says(<<~RUBY)
      require "socket"
      finalizer = nil
      Fiber.singleton_class.prepend(Module.new { define_method(:new) { |*given, **options, &block| super(*given, **options, &block).tap { finalizer&.call } } })
      Fiber.set_scheduler(scheduler = Reactor::Scheduler.new)
      reading, writing = UNIXSocket.pair
      queue = Thread::Queue.new
      log = []
      2.times { |i| scheduler.on_ready(reading) { log << "watcher \#{i}" } }
      Fiber.schedule do
        sleep 0 # after it the root fiber waits
        sleep 0.001 # and what a poll needs is there
        finalizer = -> { finalizer = nil; queue << :fiber; 2.times { sleep 0 }; log << :finalizer }
        writing << "x"
        log << queue.pop
      end
      scheduler.run
      puts log.map(&:to_s).sort.join(" ")
    RUBY
    assert_equal "fiber finalizer watcher 0 watcher 1\n", said
  end

  # --- cancelling, closing, reopening ------------------------------------------------------------------------------

  # Ways in which a watcher ends before it runs, and what `ended` is then. Each is given a watcher, its IO and the other end.
  ENDS = {
    "a cancellation" => [:cancelled, ->(watcher, _, writing) { assert watcher.cancel; refute watcher.cancel; writing << "x" }],
    "a cancellation by a fiber while run waits for it alone" => [:cancelled, ->(watcher, _, _) { Fiber.schedule { sleep 0.01; watcher.cancel } }],
    "a cancellation between its readiness and its turn" => [:cancelled, ->(watcher, _, writing) { writing << "x"; watcher.cancel }],
    "a close" => [:closed, ->(_, reading, _) { reading.close }],
    "a close by another thread" => [:closed, ->(_, reading, _) { Thread.new { sleep 0.02; reading.close } }],
    "a reopen with an IO" => [:reopened, ->(_, reading, _) { Fiber.schedule { sleep 0; reading.reopen(pair.first) } }],
    "a reopen with a path" => [:reopened, ->(_, reading, _) { Fiber.schedule { sleep 0; reading.reopen(File::NULL) } }]
  }.freeze

  ENDS.each do |name, (reason, finish)|
    define_method("test_#{name.tr(" ", "_")}_ends_a_watcher") do
      run_scheduler do |scheduler|
        reading, writing = pair
        watcher = scheduler.on_ready(reading, timeout: 3600) { flunk }
        assert_predicate watcher, :waiting?
        instance_exec(watcher, reading, writing, &finish)
        scheduler.run
        assert_equal [false, reason, nil], [watcher.waiting?, watcher.ended, watcher.io]
        refute watcher.cancel
        assert_equal [0, 0], scheduler.stats.values_at(:watchers, :timers)
      end
    end
  end

  # A watcher of an IO whose data is in Ruby's read buffer is due at once.
  { cancelled: ->(watcher, _) { watcher.cancel }, closed: ->(_, io) { io.close } }.each do |reason, finish|
    define_method("test_a_watcher_that_is_due_and_then_#{reason}_does_not_run") do
      run_scheduler do |scheduler|
        io = buffered
        watcher = scheduler.on_ready(io) { flunk }
        finish.call(watcher, io)
        scheduler.run
        assert_equal reason, watcher.ended
      end
    end
  end

  def test_closing_the_io_ends_its_watchers_and_no_other
    run_scheduler do |scheduler|
      reading, writing = pair
      twin = track(IO.for_fd(reading.fileno, autoclose: false))
      same = Array.new(2) { scheduler.on_ready(reading, timeout: 60) { flunk } }
      other = nil
      found = []
      Fiber.schedule do
        other = scheduler.on_ready(pair.first, timeout: 0.05) { |events| found << events }
        twins = scheduler.on_ready(twin, transient: true) { found << :twin }
        reading.close
        assert_equal [%i[closed closed], true, true], [same.map(&:ended), other.waiting?, twins.waiting?]
        twins.cancel
        twin.autoclose = false
      end
      scheduler.run
      assert_equal [nil], found
      writing.close
    end
  end

  # close(2) by C code: nobody tells the scheduler. The read says what has happened.
  def test_a_descriptor_that_c_code_closes_makes_its_watcher_due
    found = nil
    run_scheduler do |scheduler|
      reading, writing = IO.pipe
      reading.autoclose = false
      scheduler.on_ready(reading) { |events, io| found = [events, outcome { io.read_nonblock(1) }] }
      Fiber.schedule { IO.instance_method(:reactor_io_close).bind_call(IO.for_fd(reading.fileno)); sleep 0.01; writing.close }
    end
    assert_equal [IO::READABLE, [:raised, Errno::EBADF]], found
  end

  # --- how long it is kept -----------------------------------------------------------------------------------------

  def test_a_watcher_keeps_its_io_and_its_block_as_long_as_it_waits
    count = 50
    log = []
    run_scheduler do |scheduler|
      writers = Array.new(count) do |i|
        reading, writing = UNIXSocket.pair
        scheduler.on_ready(reading) { |_, io| log << [i, io.readpartial(1)]; io.close }
        writing
      end
      Fiber.schedule do
        3.times { GC.start }
        GC.compact if GC.respond_to?(:compact)
        writers.each { |writing| writing << "x"; writing.close }
      end
    end
    assert_equal Array.new(count) { |i| [i, "x"] }, log.sort
  end

  def test_a_watcher_that_has_ended_keeps_neither_io_nor_block
    ends = { cancelled: ->(watcher, _) { watcher.cancel }, closed: ->(_, io) { io.close }, timeout: ->(watcher, _) { sleep 0.001 while watcher.waiting? } }
    ends.each do |reason, finish|
      run_scheduler do |scheduler|
        kept = ObjectSpace::WeakMap.new
        Fiber.schedule do
          watchers = Array.new(40) { watch_and_end(scheduler, kept, finish) }
          assert_equal [reason], watchers.map(&:ended).uniq
          sleep 0
          3.times { GC.start }
          assert_operator kept.size, :<, 40, "of 80 objects, after: #{reason}"
          kept.keys.grep(IO).each(&:close) # those that an old value on a stack keeps
        end
      end
    end
  end

  def watch_and_end(scheduler, kept, finish)
    reading, writing = UNIXSocket.pair
    block = proc { nil }
    kept[reading] = kept[block] = true
    watcher = scheduler.on_ready(reading, timeout: 0.001, &block)
    finish.call(watcher, reading)
    writing.close
    watcher
  end

  # --- the scheduler -----------------------------------------------------------------------------------------------

  def test_run_continues_as_long_as_a_watcher_waits_unless_it_is_transient
    log = []
    run_scheduler do |scheduler|
      reading, writing = pair
      transient = scheduler.on_ready(pair.first, transient: true) { flunk }
      scheduler.run
      assert transient.waiting?
      writer = Thread.new { sleep 0.03; log << :written; writing << "x" }
      scheduler.on_ready(reading) { log << :ran }
      scheduler.run
      writer.join
      scheduler.close
      assert_equal [:cancelled, %i[written ran]], [transient.ended, log]
    end
  end

  def test_another_thread_gets_a_thread_error
    run_scheduler do |scheduler|
      reading, = pair
      watcher = scheduler.on_ready(reading, transient: true) { flunk }
      found = Thread.new { [outcome { scheduler.on_ready(reading) { flunk } }, outcome { watcher.cancel }] }.value
      assert_equal [[:raised, ThreadError]] * 2, found
      assert watcher.waiting?
    end
  end

  def test_a_trap_handler_gets_a_thread_error
    said = child_says(<<~RUBY)
      reading, writing = IO.pipe
      Fiber.set_scheduler(Reactor::Scheduler.new)
      scheduler = Fiber.scheduler
      trap(:USR1) do
        scheduler.on_ready(reading) { puts "never" }
      rescue ThreadError => error
        puts error.message
        writing << "x"
      end
      scheduler.on_ready(reading) { puts "ready" }
      Fiber.schedule { sleep 0.001; Process.kill(:USR1, Process.pid) }
    RUBY
    assert_equal "can't be called from trap context\nready\n", said
  end

  def test_a_watcher_that_finds_no_memory_for_a_fiber_fails_and_the_others_run
    said = run_without_memory(<<~RUBY)
      Thread.current.report_on_exception = false
      Fiber.set_scheduler(scheduler = Reactor::Scheduler.new)
      reading, writing = IO.pipe
      writing << "x"
      go = Thread::Queue.new
      ran = 0
      watchers = Array.new(60) { scheduler.on_ready(reading) { ran += 1; go.pop } }
      limit.(400_000_000)
      Fiber.schedule do
        sleep 0.001 while watchers.any?(&:waiting?)
        ended = watchers.map(&:ended).tally
        ran.times { go << true }
        puts [ended.keys.sort, ended[:ready] == ran].inspect
      end
      error = begin scheduler.run; rescue => e; e; end
      puts [error.class, ran.positive?, scheduler.live].inspect
    RUBY
    assert_equal "[[:failed, :ready], true]\n[FiberError, true, 0]\n", said
  end

  def test_a_forked_child_does_not_have_the_watcher
    needs_fork
    run_scheduler do |scheduler|
      reading, writing = pair
      ran = 0
      watcher = scheduler.on_ready(reading) { ran += 1 }
      Fiber.schedule do
        answer, answering = IO.pipe
        child = fork do
          error = outcome { scheduler.on_ready(reading) { nil } }
          answering << Marshal.dump([watcher.waiting?, watcher.ended, watcher.cancel, scheduler.watchers.size, error])
          answering.close
          exit!(0)
        end
        answering.close
        assert_equal [false, :cancelled, false, 0, [:raised, RuntimeError]], Marshal.load(answer.read)
        answer.close
        Process.wait(child)
        assert watcher.waiting?
        writing << "x"
      end
      scheduler.run
      assert_equal [1, :ready], [ran, watcher.ended]
    end
  end

  # --- observers ---------------------------------------------------------------------------------------------------

  def test_a_watcher_is_shown_as_a_watcher
    run_scheduler do |scheduler|
      io = pair.first
      watcher = scheduler.on_ready(io, transient: true) { flunk }
      text = "#<Reactor::Watcher waiting for #{io.inspect} to be readable>"
      assert_equal text, watcher.inspect
      assert_equal [[watcher], 1, 0], [scheduler.watchers, *scheduler.stats.values_at(:watchers, :live)]
      Fiber.schedule { assert_equal 0, scheduler.fibers.count { |status| status.hook == :io } }
      assert_match(/1 watchers$.*#{Regexp.escape(text)}/m, scheduler.dump)
      watcher.cancel
      assert_equal ["#<Reactor::Watcher cancelled>", []], [watcher.inspect, scheduler.watchers]
    end
  end

  def test_a_trace_shows_the_fiber_by_the_place_of_its_block
    path = File.join(Dir.tmpdir, "reactor-on-ready-#{Process.pid}.json")
    line = nil
    run_scheduler do |scheduler|
      scheduler.trace(path) do
        line = __LINE__ + 1
        scheduler.on_ready(buffered) { sleep 0.001 }
        scheduler.run
      end
    end
    names = JSON.parse(File.read(path))["traceEvents"].filter_map { |event| event.dig("args", "name") }
    assert(names.any? { |name| name.end_with?("test_on_ready.rb:#{line}") }, names.inspect)
  ensure
    File.delete(path) if path && File.exist?(path)
  end

  def test_a_watcher_that_will_wake_a_fiber_is_no_deadlock
    found = nil
    run_scheduler do |scheduler|
      reading, writing = pair
      queue = Thread::Queue.new
      scheduler.on_ready(reading, transient: true) { queue << :pushed }
      Fiber.schedule { found = queue.pop }
      child = Process.spawn(*shell("sleep 0.05; echo x"), out: writing)
      scheduler.run
      Process.wait(child)
    end
    assert_equal :pushed, found
  end

  def test_the_timeout_of_a_watcher_elapses_in_virtual_time
    log = []
    Reactor::Testing.virtual_time(backend: BACKEND) do |clock|
      reading, writing = pair
      Fiber.scheduler.on_ready(pair.first, timeout: 3600) { |events| log << [events, clock.elapsed] }
      Fiber.scheduler.on_ready(reading, timeout: 7200) { |events| log << [events, clock.elapsed] }
      Fiber.schedule { sleep 1800; log << clock.elapsed; writing << "x" }
    end
    assert_equal [1800.0, [IO::READABLE, 1800.0], [nil, 3600.0]], log
  end

  # The input is real: virtual time waits for it for a while, because a watcher does.
  def test_virtual_time_waits_for_the_input_of_a_watcher
    found = nil
    Reactor::Testing.virtual_time(backend: BACKEND, settle: TEST_TIMEOUT) do |clock|
      reading, writing = IO.pipe.each { |io| track(io) }
      child = Process.spawn(*shell("sleep 0.1; echo x"), out: writing)
      Fiber.scheduler.on_ready(reading, timeout: 3600) { |events| found = [events, clock.elapsed]; Process.detach(child) }
    end
    assert_equal [IO::READABLE, 0.0], found
  end

  # --- bad input ---------------------------------------------------------------------------------------------------

  def test_bad_input_raises_what_ruby_raises
    run_scheduler do |scheduler|
      reading, writing = pipe
      closed = IO.pipe.each(&:close).first
      {
        [1] => TypeError, [nil] => TypeError, [StringIO.new] => TypeError, [reading, "r"] => TypeError, [reading, 0] => ArgumentError,
        [reading, 8] => ArgumentError, [closed] => IOError, [writing] => IOError, [reading, IO::WRITABLE] => IOError
      }.each do |arguments, error|
        assert_equal [:raised, error], outcome { scheduler.on_ready(*arguments) { flunk } }, arguments.inspect
      end
      assert_equal [0, 0], scheduler.stats.values_at(:watchers, :timers)
    end
  end

  def test_a_process_is_watched_in_one_direction_at_a_time
    log = []
    run_scheduler do |scheduler|
      process = track(IO.popen(shell("cat"), "r+"))
      assert_raises(ArgumentError) { scheduler.on_ready(process, IO::READABLE | IO::WRITABLE) { flunk } }
      scheduler.on_ready(process) { |events| log << events }
      scheduler.on_ready(process, IO::WRITABLE) { |events, io| log << events; io << "x"; io.close_write }
    end
    assert_equal [IO::WRITABLE, IO::READABLE], log
  end

  def test_a_watcher_is_neither_frozen_nor_copied
    run_scheduler do |scheduler|
      watcher = scheduler.on_ready(pair.first, transient: true) { flunk }
      %i[freeze dup clone].each { |name| assert_raises(TypeError) { watcher.public_send(name) } }
    end
  end
end

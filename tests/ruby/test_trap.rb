# frozen_string_literal: true

require_relative "helper"

# A trap handler runs in the fiber that polls, in the middle of that fiber's wait, and may wait itself.
class TestTrap < ReactorTest
  # Runs `wait` in the fiber that polls. A signal interrupts the wait, and `handler` runs there; meanwhile another thread runs
  # `outside`, if given. The clock stands still until the handler runs, so that no limit elapses earlier, however slow the
  # machine.
  SCRIPT = <<~'RUBY'
    require "timeout"
    require "reactor/testing"
    wait, handler, outside = ARGV
    $queue, $inner, $entered, $go = Array.new(4) { Thread::Queue.new }
    $mutex, $condition, $held = Thread::Mutex.new, Thread::ConditionVariable.new, Thread::Queue.new
    $reading, $writing = IO.pipe
    $waiting = $polls = nil
    by_itself = wait.start_with?("by itself: ")
    wait = wait.delete_prefix("by itself: ")
    clock = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) } # as Floats, differences depend on the uptime
    main = Thread.current
    handlers = []
    scheduler = nil
    trap(:USR1) do
      scheduler.virtual_hold(false)
      $entered << true
      eval(handler)
      handlers << Fiber.current
    end
    module Counting
      BLOCKS = []
      def block(blocker, timeout = nil)
        BLOCKS << blocker
        super
      end
    end
    signaller = Thread.new do
      $go.pop
      Thread.pass until $waiting && main.stop?
      Process.kill(:USR1, Process.pid) unless by_itself
      $entered.pop
      if outside
        Thread.pass until main.stop? # the handler waits
        eval(outside)
      end
    end
    Reactor::Testing.virtual_time do
      scheduler = Fiber.scheduler
      scheduler.singleton_class.prepend(Counting)
      sleep 0 # after it the root fiber waits, and this one polls
      sleep 0.001
      scheduler.virtual_hold(true)
      $go << true
      Counting::BLOCKS.clear
      began = clock.()
      $waiting = true
      value = eval(wait)
      took = clock.() - began
      puts [handlers == [$polls || Fiber.current], value.inspect, took >= 300_000_000, Counting::BLOCKS.count($queue)].join("|")
    end
    signaller.join
  RUBY

  # The handler ran once, in the fiber that waited. Then come the value, whether it took 0.3 s, and the calls of `block`.
  def after_a_signal_in(wait, handler:, outside: nil)
    handled, value, long, blocks = child_says(SCRIPT, *[wait, handler, outside].compact).chomp.split("|")
    assert_equal "true", handled, "the handler did not run in the fiber that waits"
    [value, long, blocks.to_i]
  end

  def test_a_trap_handler_that_waits_does_not_end_a_wait_with_a_limit
    assert_equal ["nil", "true", 1], after_a_signal_in("$queue.pop(timeout: 0.3)", handler: "sleep 0.01"), "calls of block"
    ["sleep(0.3) && nil", "$reading.wait_readable(0.3)", "IO.select([$reading], nil, nil, 0.3)", "Thread.new { $held.pop }.join(0.3)"].each do |wait|
      assert_equal ["nil", "true"], after_a_signal_in(wait, handler: "sleep 0.01").first(2), wait
    end
  end

  # A wait for several descriptors ends, and its registrations are removed afterwards. Starting a fiber is not a wait.
  def test_a_trap_handler_that_selects_or_starts_a_fiber_does_not_end_the_wait_that_it_interrupts
    waits = { "sleep(0.3) && true" => "true", "$queue.pop(timeout: 0.3)" => "nil", "IO.select([$reading], nil, nil, 0.3)" => "nil" }
    ["IO.select([$writing, $reading], [$writing])", "Fiber.schedule { sleep 0.01 }", "Fiber.schedule { $inner << 1 }"].each do |handler|
      waits.each { |wait, value| assert_equal [value, "true"], after_a_signal_in(wait, handler: handler).first(2), [wait, handler] }
    end
  end

  # The clock stands still until the handler has ended, so nothing else ends the sleep earlier.
  def test_a_trap_handler_that_joins_a_thread_or_waits_for_any_child_does_not_end_the_sleep_that_it_interrupts
    joins = "Thread.new { $inner.pop }.join", "$inner << 1"
    waits = "spawn(*shell('read a; true'), in: $reading); Process.wait(-1)", "$writing.puts(1)"
    unlimited = "begin; Timeout.timeout(0.3) { sleep; false }; rescue Timeout::Error; true; end"
    [["sleep(0.3) && true", joins], ["sleep(0.3) && true", waits], ["sleep(0.3) && true", ["$inner.pop", "$inner << 1"]], [unlimited, waits]].each do |wait, (handler, outside)|
      handler = "scheduler.virtual_hold(true); #{handler}; scheduler.virtual_hold(false)"
      assert_equal ["true", "true"], after_a_signal_in(wait, handler: handler, outside: outside).first(2), [wait, handler]
    end
  end

  def test_an_unblock_that_comes_while_a_trap_handler_waits_is_not_lost
    assert_equal [":outer", 1], after_a_signal_in("$queue.pop", handler: "$inner.pop", outside: "$queue << :outer; $inner << 1").values_at(0, 2)
    [
      ["$mutex.synchronize { $condition.wait($mutex); 1 }", "Thread.pass until $mutex.try_lock; $condition.signal; $mutex.unlock"],
      ["Thread.new { $held.pop }.value", "$held << 1; sleep 0.001 while Thread.list.size > 2"],
      ["$reading.readpartial(1).to_i", "$writing.write('1')"],
      ["IO.select([$reading]).size - 2", "$writing.write('1')"]
    ].each do |wait, outside|
      assert_equal "1", after_a_signal_in(wait, handler: "$inner.pop", outside: "#{outside}; $inner << 1").first, wait
    end
  end

  def test_what_ends_the_handlers_wait_does_not_end_the_one_that_it_interrupts
    assert_equal "[1, :inner]", after_a_signal_in("[$queue.pop, $got]", handler: "$got = $inner.pop", outside: "$inner << :inner; $queue << 1").first
  end

  def test_an_io_that_is_closed_while_a_trap_handler_waits_ends_the_wait_for_it
    wait = "begin; $reading.read(1); rescue IOError; 1; end"
    # From Ruby 4.0 on, close waits until the fiber has left, and thus for the handler.
    close = "closer = Thread.new { $reading.close }; Thread.pass until closer.stop?; $inner << 1; closer.join"
    assert_equal "1", after_a_signal_in(wait, handler: "$inner.pop", outside: close).first
    # Meanwhile the loop continues, with its timers.
    assert_equal "1", after_a_signal_in(wait, handler: "$inner.pop; sleep 0.01", outside: close).first
  end

  def test_an_io_that_a_trap_handler_no_longer_watches_and_closes_ends_no_wait_for_others
    %w[READABLE WRITABLE PRIORITY].each do |event|
      assert_equal "\"1\"\n", child_says(<<~'RUBY', event), event
        require "socket"
        event = ARGV[0]
        main, (one, _other), (reading, writing) = Thread.current, UNIXSocket.pair, IO.pipe
        nil while event == "WRITABLE" && one.write_nonblock("x" * 10_000, exception: false) != :wait_writable
        Reactor.run do
          watcher = Fiber.scheduler.on_ready(one, IO.const_get(event)) { raise "it was cancelled" }
          trap(:USR1) { watcher.cancel; one.close; writing.write("1") }
          polls = -> { main.stop? }
          Thread.new { Thread.pass until polls.call; Process.kill(:USR1, Process.pid) }
          p reading.read(1)
        end
      RUBY
    end
  end

  def test_an_io_that_is_ready_while_a_trap_handler_waits_does_not_keep_the_loop_from_sleeping
    wait = "$reading.readpartial(1); $turns <= 10 ? :few : $turns"
    turns = "Fiber.scheduler.stats[:turns]"
    handler = "$inner.pop; before = #{turns}; sleep 0.2; $turns = #{turns} - before"
    [handler, "Enumerator.new { |y| y << (#{handler}) }.next"].each do |handles|
      assert_equal ":few", after_a_signal_in(wait, handler: handles, outside: "$writing.write('1'); $inner << 1").first, handles
    end
  end

  # The handler waits for an Enumerator. Whatever ends the fiber's own wait comes before the Enumerator's end. It must not give
  # the fiber control, which would end the handler's wait with nil.
  def test_what_ends_a_wait_while_a_trap_handler_in_it_waits_for_an_enumerator_ends_it_after_the_handler
    handler = "$slept = Enumerator.new { |y| y << ($inner.pop; 2.times { sleep 0.01 }) }.next"
    {
      "$queue.pop" => "$queue << 1",
      "$reading.readpartial(1).to_i" => "$writing.write('1')",
      "$mutex.synchronize { $condition.wait($mutex); 1 }" => "Thread.pass until $mutex.try_lock; $condition.signal; $mutex.unlock",
      "begin; Timeout.timeout(0.001, EOFError) { sleep }; rescue EOFError; 1; end" => "sleep 0.01",
      "begin; $reading.read(1); rescue IOError; 1; end" => "closer = Thread.new { $reading.close }; Thread.pass until closer.stop?"
    }.each do |wait, outside|
      assert_equal "[1, 2]", after_a_signal_in("#{wait}.then { |value| [value, $slept] }", handler: handler, outside: "#{outside}; $inner << 1").first, wait
    end
  end

  # The root fiber polls, and gets control when the last fiber ends.
  def test_a_trap_handler_that_waits_for_an_enumerator_ends_even_if_all_fibers_have_ended
    said = child_says(<<~'RUBY')
      queue, inner, entered = Array.new(3) { Thread::Queue.new }
      trap(:USR1) do
        entered << true
        puts Enumerator.new { |y| y << inner.pop }.next
      end
      main = Thread.current
      fiber = nil
      thread = Thread.new do
        Thread.pass until fiber && main.stop?
        Process.kill(:USR1, Process.pid)
        entered.pop
        queue << true
        Thread.pass while fiber.alive?
        inner << :handled
      end
      Fiber.set_scheduler(Reactor::Scheduler.new)
      fiber = Fiber.schedule do
        queue.pop
        puts "ended"
      end
      Fiber.scheduler.run
      puts "over"
      thread.join
    RUBY
    assert_equal "ended\nhandled\nover\n", said
  end

  # A timeout is raised in the interrupted code after the handler, which waits for longer than the timeout.
  #
  # @param blocks [Hash{String => String}] by name
  # @yieldparam code [String]
  # @yieldreturn [String] the wait for {#after_a_signal_in}
  def assert_raised_after_the_handler(blocks, error: "EOFError", waits: "2.times { sleep 0.2 }")
    handler = "begin; #{waits}; $slept = true; rescue Exception => error; $slept = error.class; end"
    blocks.each do |name, block|
      wait = yield "begin; #{block}; rescue #{error}; [1, $slept]; end"
      assert_equal "[1, true]", after_a_signal_in(wait, handler: handler).first, name
    end
  end

  # The program cannot know in which fiber a handler runs, so timeouts around that fiber's wait do not affect the handler.
  def test_a_timeout_around_the_wait_that_a_trap_handler_interrupts_does_not_end_the_handlers_wait
    blocks = {
      "a sleep" => "Timeout.timeout(0.3) { sleep 1 }",
      "a class" => "Timeout.timeout(0.3, EOFError) { $queue.pop }",
      "an Enumerator between two values" => "(e = Enumerator.new { |y| Timeout.timeout(0.3) { y << 1 } }).next; $reading.read",
      "a fiber that waits for an Enumerator" => "Timeout.timeout(0.3) { Enumerator.new { |_| $polls = Fiber.current; $queue.pop }.next }"
    }
    error = "EOFError, Timeout::ExitException, Timeout::Error"
    assert_raised_after_the_handler(blocks, error: error, waits: "sleep 0.5", &:itself)
  end

  # The handler waits twice.
  def test_a_timeout_around_a_wait_that_a_trap_handler_forestalls_does_not_end_the_handlers_wait
    blocks = {
      "a wait" => "Timeout.timeout(0.1, EOFError) { $reading.wait_readable(60) }",
      "a wait in an Enumerator" => "Timeout.timeout(0.1, EOFError) { Enumerator.new { |_| $polls = Fiber.current; $reading.wait_readable(60) }.next }",
      "a wait in a fiber with a timeout of its own" => "Timeout.timeout(0.1, EOFError) { Timeout.timeout(60) { $reading.wait_readable(60) } }"
    }
    assert_raised_after_the_handler(blocks, &:itself)
  end

  # What a handler runs in a timeout. The fiber of an Enumerator that is made there refuses locks, like the handler itself.
  HANDLERS_OWN = ["sleep 1", "Enumerator.new { |_| sleep 1 }.next", "Enumerator.new { |_| Timeout.timeout(60) { sleep 1 } }.next"].freeze

  # The signal comes while the fiber runs the program's Ruby code. The handler waits twice.
  def test_a_timeout_around_code_that_a_trap_handler_interrupts_does_not_end_the_handlers_waits
    signal = "Process.kill(:USR1, Process.pid)"
    blocks = {
      "code" => "Timeout.timeout(0.1, EOFError) { #{signal}; sleep }",
      "code in an Enumerator" => "Timeout.timeout(0.1, EOFError) { Enumerator.new { |_| $polls = Fiber.current; #{signal}; sleep }.next }",
      "code in a fiber with a timeout of its own" => "Timeout.timeout(0.1, EOFError) { Timeout.timeout(60) { #{signal}; sleep } }"
    }
    assert_raised_after_the_handler(blocks) { |wait| "by itself: #{wait}" }
  end

  # The VM reports and drops what a finalizer raises. The VM postpones these finalizers; GC.start runs its own at once, which
  # nothing shows.
  FINALIZER_SCRIPT = <<~'RUBY'
    require "timeout"
    require "reactor/testing"
    each_waits = ARGV
    $waits = $slept = nil
    # Some of the objects may stay, because words on the stack look like references to them.
    finalizer = proc do
      GC.stress = false
      $slept ||= begin
        eval($waits)
      rescue Exception => error
        error.class
      end
    end
    # However long the machine takes, the limit does not elapse before the finalizer waits.
    Reactor::Testing.virtual_time do
      each_waits.each do |waits|
        $waits, $slept = waits, nil
        100.times { ObjectSpace.define_finalizer(Object.new, finalizer) }
        Timeout.timeout(0.1, EOFError) { GC.stress = true; Object.new until $slept; sleep 60 }
        puts "not raised, #{$slept.inspect}"
      rescue EOFError
        puts "raised after #{$slept.inspect}"
      end
    end
  RUBY

  # @param waits [Hash] what the finalizer does => its value
  def assert_raised_after_finalizer(waits)
    found = child_says(FINALIZER_SCRIPT, *waits.keys).lines
    assert_equal waits.transform_values { |value| "raised after #{value}\n" }, waits.keys.zip(found).to_h
  end

  def test_a_timeout_that_fires_while_a_finalizer_waits_is_raised_after_it
    assert_raised_after_finalizer("2.times { sleep 0.2 }" => "2", "(deep = ->(n) { n.zero? ? sleep(0.2) && 2 : deep.(n - 1) }).(300)" => "2")
  end

  # The limit of the interrupted code elapses while the finalizer's wait has a timeout of its own, or just before.
  def test_a_timeout_around_code_is_not_raised_inside_a_timeout_of_the_finalizer_that_interrupts_it
    assert_raised_after_finalizer(
      "Timeout.timeout(0.001, IOError) { sleep }" => "IOError",
      "Timeout.timeout(60, IOError) { 2.times { sleep 0.2 } }" => "2",
      "Timeout.timeout(60, IOError) { Timeout.timeout(0.3, IndexError) { sleep } }" => "IndexError",
      "sleep 0.2; Timeout.timeout(0.001, IOError) { sleep }" => "IOError",
      "sleep 0.2; begin; Timeout.timeout(0.1, IOError) { sleep }; rescue IOError; Timeout.timeout(0.1, IndexError) { sleep }; end" => "IndexError",
      "Reactor.group(timeout: 0.3) { sleep }" => "Reactor::DeadlineExceeded"
    )
  end

  # The timeout's fiber waits for an Enumerator that the finalizer has resumed and that may have timeouts of its own.
  def test_a_timeout_that_fires_while_a_finalizer_waits_for_an_enumerator_is_raised_after_it
    waits = {
      "Enumerator.new { |y| y << 2.times { sleep 0.2 } }.next" => "2",
      "Enumerator.new { |_| Timeout.timeout(0.001, IOError) { sleep } }.next" => "IOError",
      "Enumerator.new { |_| Timeout.timeout(0.3, IOError) { sleep } }.next" => "IOError",
      "Timeout.timeout(0.3, IOError) { Enumerator.new { |_| sleep 60 }.next }" => "IOError",
      "Timeout.timeout(0.3, IOError) { Enumerator.new { |y| y << 2.times { sleep 0.1 } }.next }" => "2",
      "Enumerator.new { |y| y << sleep(0.2) }.next; Timeout.timeout(0.3, IOError) { Enumerator.new { |_| sleep 60 }.next }" => "IOError",
      "Timeout.timeout(0.3, IOError) { Enumerator.new { |_| Timeout.timeout(60) { sleep } }.next }" => "IOError"
    }
    assert_raised_after_finalizer(waits)
  end

  # The first signal comes while the fiber runs; then comes `after`. The next signal comes while the loop sleeps.
  TWO_SIGNALS = <<~'RUBY'
    handler, after = ARGV
    $queue = Thread::Queue.new
    $handled, $waits = 0, false
    $wait = -> { $waits = true; $queue.pop(timeout: 1_000_000) }
    trap(:USR1) { ($handled += 1) == 1 ? eval(handler) : $queue << :handled }
    main = Thread.current
    signaller = Thread.new do
      Thread.pass until $waits && main.stop?
      Process.kill(:USR1, Process.pid)
    end
    Fiber.set_scheduler(Reactor::Scheduler.new)
    Fiber.schedule do
      sleep 0 # after it the root fiber waits, and there was no poll yet
      Process.kill(:USR1, Process.pid)
      eval(after)
    end
    Fiber.scheduler.run
    signaller.join
  RUBY

  # A fiber made in a trap handler never runs trap handlers, even after that handler has ended.
  def test_a_signal_is_handled_while_the_loop_sleeps_even_if_the_fiber_that_polls_was_made_in_a_trap_handler
    {
      "a fiber of the scheduler's" => ["Fiber.schedule { sleep 0.001; p $wait.call }", "nil"],
      "an Enumerator" => ["$values = Enumerator.new { |y| y << 1; y << $wait.call }; $values.next", "p $values.next"],
      "a fiber of the program's" => ["$fiber = Fiber.new { Fiber.yield; sleep 0.001; p $wait.call }; $fiber.resume", "$fiber.resume"],
      "the first poll" => ["sleep 0.001", "p $wait.call"]
    }.each do |name, (handler, after)|
      assert_equal ":handled\n", child_says(TWO_SIGNALS, handler, after), name
    end
  end

  # Another process sends the signals, so some arrive in the fiber that switches to new fibers for the main program.
  def test_fibers_that_trap_handlers_start_while_the_main_program_starts_others_all_end
    needs_fork # otherwise another process cannot send such a signal
    assert_equal "true true", child_says(<<~'RUBY', RbConfig.ruby)
      started = ended = begun = others = 0
      trap(:USR1) do
        started += 1
        Fiber.schedule { sleep 0.0005; ended += 1 }
      end
      sender = spawn(ARGV[0], "--disable-all", "-e", "loop { Process.kill(:USR1, #{Process.pid}); sleep 0.0005 }")
      Fiber.set_scheduler(Reactor::Scheduler.new)
      until started >= 300
        begun += 1
        Fiber.schedule { sleep 0; others += 1 }
        Fiber.scheduler.yield
      end
      Process.kill(:KILL, sender)
      Thread.new { Process.wait(sender) }.join
      Fiber.scheduler.run
      print "#{started == ended} #{begun == others}"
    RUBY
  end

  def test_a_trap_handler_waits_for_children_and_looks_up_names
    {
      "`echo 1`.to_i" => "1", "system(*shell('true'))" => "true", "Process.wait2(spawn(*shell('true')))[1].to_i" => "0",
      "spawn(*shell('true')); Process.wait2(-1)[1].to_i" => "0", "spawn(*shell('true')); Process.wait2(0)[1].to_i" => "0",
      "require 'socket'; Addrinfo.getaddrinfo('localhost', 80).empty?" => "false",
      "require 'socket'; server = TCPServer.new('localhost', 0); TCPSocket.new('localhost', server.local_address.ip_port).closed?" => "false"
    }.each do |call, answer|
      handler = "$answer = begin; #{call}; rescue Exception; $!; end"
      assert_equal answer, after_a_signal_in("sleep(0.3) && $answer", handler: handler).first, call
    end
  end

  # The fiber interrupted by the handler may have the turn that the handler would wait for.
  def test_a_trap_handler_in_the_middle_of_a_wait_for_any_child_waits_for_any_child
    pids = "pids = [spawn(*shell('read a; true'), in: $reading), spawn(*shell('read a; true'), in: $reading)]"
    handler = "$writing.puts(1); $first = Process.wait(-1); $writing.puts(2)"
    assert_equal "true", after_a_signal_in("#{pids}; [Process.wait(-1), $first].sort == pids.sort", handler: handler).first
  end

  # Code that the handler interrupts: a wait, one that the handler forestalls, and code before a wait.
  INTERRUPTED = [
    "Timeout.timeout(0.3, EOFError) { sleep 1 }", "Timeout.timeout(0.2, EOFError) { $reading.wait_readable(60) }",
    *[0.2, 60].map { |limit| "Timeout.timeout(#{limit}, EOFError) { Process.kill(:USR1, Process.pid); sleep 0.3 }" }
  ].freeze

  def test_a_trap_handler_has_timeouts_of_its_own
    HANDLERS_OWN.product(INTERRUPTED) do |block, code|
      handler = "begin; Timeout.timeout(0.001, IOError) { #{block} }; rescue IOError; $inner << 1; end"
      wait = "#{"by itself: " if code.include?("kill")}begin; #{code}; rescue EOFError; end; $inner.size"
      assert_equal "1", after_a_signal_in(wait, handler: handler).first, [block, code]
    end
  end
end

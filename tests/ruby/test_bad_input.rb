# frozen_string_literal: true

require_relative "helper"
require "reactor/testing"

# Wrong arguments, and descriptors that are closed or replaced while fibers wait: the error must be that of plain Ruby, and
# the scheduler must work as before.
class TestBadInput < ReactorTest
  # No stale wake-up ends a sleep early, and descriptors work.
  def assert_still_sound
    assert_operator elapsed { sleep 0.01 }, :>=, 0.01
    r, w = IO.pipe
    Fiber.schedule { w << "sound" }
    assert_equal "sound", r.readpartial(9)
    assert_nil r.wait_readable(0.001)
    [r, w].each(&:close)
  end

  # Runs each call in plain Ruby and under the scheduler, and compares values and error classes.
  def assert_like_plain_ruby(calls)
    outcomes = -> { calls.transform_values { |call| outcome(&call) } }
    assert_equal run_plain(&outcomes), in_fiber { outcomes.call.tap { assert_still_sound } }
  end

  NO_BLOCK = /no block given/

  # What each call raises.
  OPTIONS = [
    [ArgumentError, NO_BLOCK, -> { Reactor.group }],
    [ArgumentError, NO_BLOCK, -> { Reactor.group { |group| group.async } }],
    [ArgumentError, NO_BLOCK, -> { Reactor.group { |group| group.map([1]) } }],
    [ArgumentError, NO_BLOCK, -> { Reactor.group { |group| group.settle([1]) } }],
    [ArgumentError, NO_BLOCK, -> { Reactor.group { |group| group.any([1]) } }],
    [TypeError, /limit.*String/, -> { Reactor.group(limit: "3") { flunk } }],
    [ArgumentError, /limit.*not 0/, -> { Reactor.group(limit: 0) { flunk } }],
    [TypeError, /timeout.*String/, -> { Reactor.group(timeout: "3") { flunk } }],
    [ArgumentError, NO_BLOCK, -> { Reactor.deadline(1) }],
    [TypeError, /seconds.*String/, -> { Reactor.deadline("1") { flunk } }],
    [TypeError, /seconds.*Array/, -> { Reactor.deadline([]) { flunk } }],
    [TypeError, /seconds.*Object/, -> { Reactor.deadline(Object.new) { flunk } }],
    [ArgumentError, NO_BLOCK, -> { Reactor.shield }],
    [ArgumentError, /block/, -> { Reactor::Server.new(listener) }],
    [TypeError, /listener.*Integer/, -> { Reactor::Server.new(8080) { flunk } }],
    [ArgumentError, /grace: .*negative/, -> { Reactor::Server.new(listener, grace: -1) { flunk } }],
    *{ limit: -1, idle_timeout: -1, linger: -1, scheduler: nil, speaks: :last }.map { |name, value| [ArgumentError, /#{name}/, -> { Reactor::Server.new(listener, name => value) { flunk } }] },
    *{ limit: "3", idle_timeout: "3", linger: "3", handshake: 1, on_open: 1, handshake_timeout: [] }.map { |name, value| [TypeError, /#{name}/, -> { Reactor::Server.new(listener, name => value) { flunk } }] },
    [TypeError, /limit/, -> { Reactor::Server.new(listener, limit: 1.5) { flunk } }],
    [TypeError, /linger/, -> { Reactor::Server.new(listener, linger: nil) { flunk } }],
    [ArgumentError, /limit/, -> { Reactor::Server.new(listener, limit: 0) { flunk } }],
    [ArgumentError, NO_BLOCK, -> { Fiber.scheduler.on_ready(pipe.first) }],
    [TypeError, /timeout: .*String/, -> { Fiber.scheduler.on_ready(pipe.first, timeout: "3") { flunk } }],
    [RangeError, /timeout: /, -> { Fiber.scheduler.on_ready(pipe.first, timeout: Float::NAN) { flunk } }],
    [ArgumentError, /timeout: .*negative/, -> { Fiber.scheduler.on_ready(pipe.first, timeout: -1) { flunk } }],
    [ArgumentError, /events/, -> { Fiber.scheduler.on_ready(pipe.first, 0) { flunk } }],
    *{ stall: 0, workers: 0, backend: :some, stell: 1 }.map { |name, value| [ArgumentError, /#{name}/, -> { Reactor::Scheduler.new(name => value) }] },
    *{ stall: "soon", workers: "2" }.map { |name, value| [TypeError, /#{name}.*String/, -> { Reactor::Scheduler.new(name => value) }] },
    [ArgumentError, /stall/, -> { Reactor::Scheduler.new(stall: -1) }],
    [TypeError, /on_stall/, -> { Reactor::Scheduler.new(stall: 1, on_stall: 5) }],
    [TypeError, /on_stall/, -> { Reactor::Scheduler.new(on_stall: 5) }],
    [ArgumentError, /unknown policy :some.*measured, always, never/, -> { Reactor::Scheduler.new(policy: :some) }],
    [ArgumentError, /longer_than/, -> { Fiber.scheduler.holders(longer_than: -1) }],
    [TypeError, /longer_than/, -> { Fiber.scheduler.holders(longer_than: nil) }],
    [TypeError, /longer_than.*String/, -> { Fiber.scheduler.holders(longer_than: "soon") }],
    [TypeError, /settle: .*String/, -> { run_plain { Reactor::Testing.virtual_time(settle: "3") { flunk } } }],
    [TypeError, /settle/, -> { run_plain { Reactor::Testing.virtual_time(settle: nil) { flunk } } }]
  ].freeze

  def test_a_wrong_option_is_named
    in_fiber do
      OPTIONS.each do |kind, message, call|
        told = assert_raises(kind, "#{message.inspect}, line #{call.source_location.last}") { instance_exec(&call) }.message
        assert_match message, told, "line #{call.source_location.last}"
      end
      assert_still_sound
    end
  end

  # Each list makes a hook raise the error, or return false as for something that is not there.
  def test_hooks_called_directly_check_their_arguments
    r, = pipe
    wrong = {
      TypeError => { io_wait: [["no io", 1, nil], [r, "1", nil], [r, nil, nil], [r, 1, "soon"], [nil, 1, nil]],
                     kernel_sleep: [["1"], [[]]], block: [[nil, "1"]] },
      ArgumentError => { io_wait: [[r, 0, nil], [r, 8, nil], [r, -1, nil], [r, 1, -1]], kernel_sleep: [[-1], [1, 2]],
                         offload: [[]] },
      nil => { process_wait: [[nil, 0], ["1", 0], [1, nil], [1, []]], address_resolve: [[1], [:name]], cancel_watcher: [["x"]],
               wait_any: [[nil, [], 0], [[], 1, 0], [[], [], 0, [nil]], [[], [], 0, [[]]]] }
    }
    in_fiber do |scheduler|
      wrong.each do |error, hooks|
        allowed = error ? [[:raised, error]] : [[:raised, TypeError], [:raised, ArgumentError], [:value, false]]
        hooks.each do |hook, lists|
          lists.each { |list| assert_includes allowed, outcome { scheduler.public_send(hook, *list) }, "#{hook}#{list}" }
        end
      end
      assert_still_sound
    end
  end

  def test_a_descriptor_closed_through_another_io_raises_as_in_plain_ruby
    calls = {}
    [["read", ->(io) { io.readpartial(1) }], ["wait", ->(io) { io.wait_readable(0.05) }]].each do |name, use|
      calls[name] = lambda do
        r, w = IO.pipe
        IO.for_fd(r.fileno).close
        r.autoclose = false
        use.(r)
      ensure
        w.close
      end
    end
    assert_like_plain_ruby(calls)
  end

  # (On Windows IO#stat would crash the process, and plain Ruby's error is that of an earlier call.)
  def test_a_copy_from_a_descriptor_closed_through_another_io_raises
    r, = IO.pipe
    null = track(File.open(File::NULL, "w"))
    in_fiber do
      IO.for_fd(r.fileno).close
      r.autoclose = false
      assert_raises(SystemCallError) { IO.copy_stream(r, null) }
    end
  end

  def test_a_socket_that_is_connected_is_not_connected_again
    server = track(TCPServer.new("127.0.0.1", 0))
    assert_like_plain_ruby("connect" => lambda do
      socket = track(Socket.new(:INET, :STREAM))
      socket.connect(server.local_address)
      socket.connect(server.local_address)
    end)
  end

  # The dup keeps the registration of the closed descriptor in the kernel while its number is reused.
  def test_events_of_a_closed_descriptor_with_a_dup_do_not_end_waits_on_the_reused_number
    r, w = IO.pipe
    in_fiber do
      assert_nil r.wait_readable(0.005)
      copy = track(r.dup)
      number = r.fileno
      r.close
      r2, w2 = pipe
      assert_equal number, r2.fileno, "the test needs the number again"
      Fiber.schedule { w << "for the copy" }
      assert_nil r2.wait_readable(0.01)
      w2 << "for r2"
      assert_equal "for r2", r2.readpartial(20)
      assert_equal "for the copy", copy.readpartial(20)
      assert_still_sound
    end
    w.close
  end

  def test_a_scheduler_that_cannot_be_made_leaks_no_descriptor
    out = child_says(<<~'RUBY')
      Process.setrlimit(:NOFILE, 64)
      Reactor::Scheduler.new.close # loads what is loaded on first use
      GC.start
      spare = []
      loop { spare << File.open(File::NULL) } rescue spare.pop.close
      20.times { Reactor::Scheduler.new.close rescue nil }
      spare << File.open(File::NULL) # the one free descriptor is still free
      spare.pop(8).each(&:close)
      puts "made"
      Fiber.set_scheduler(Reactor::Scheduler.new)
      Fiber.schedule { sleep 0.001; puts "sound" }
    RUBY
    assert_equal "made\nsound\n", out
  end

  def test_a_scheduler_that_was_never_initialized_is_not_made
    careless = Class.new(Reactor::Scheduler) { def initialize(*, **) = nil }
    assert_match(/must call super/, assert_raises(RuntimeError) { careless.new }.message)
    assert_match(/allocator undefined/, assert_raises(TypeError) { Reactor::Scheduler.allocate }.message)
  end

  def test_a_scheduler_is_not_copied_or_initialized_twice
    run_scheduler do |scheduler|
      assert_raises(TypeError) { scheduler.dup }
      assert_raises(TypeError) { scheduler.clone }
      kind, error = outcome { scheduler.send(:initialize) }
      assert_includes [RuntimeError, TypeError, ArgumentError], error if kind == :raised
      Fiber.schedule { assert_still_sound }
    end
  end

  # Found by bin/check wild.

  def test_a_kill_in_to_io_is_not_lost_to_an_error_of_the_buffer
    asks = Object.new
    def asks.to_io = Fiber.yield
    in_fiber do |scheduler|
      %i[kill raise].each do |ending|
        inner = Fiber.new { scheduler.io_read(asks, IO::Buffer.new(4), 2**40, 0) }
        inner.resume
        inner.kill if ending == :kill
        assert_raises(ArgumentError) { inner.raise(IOError) } if ending == :raise
        refute inner.alive?
      end
      assert_still_sound
    end
  end

  def test_a_frozen_file_that_was_written_is_closed
    assert_like_plain_ruby("close" => -> { File.open(File::NULL, "w").freeze.close })
  end

  def test_an_io_that_is_frozen_while_a_fiber_waits_ends_no_other_fiber
    r, w = pipe
    other, other_w = pipe
    log = []
    run_scheduler do |scheduler|
      Fiber.schedule { log << outcome { r.wait_readable } }
      Fiber.schedule { log << other.readpartial(9) }
      Fiber.schedule do
        until_parked(scheduler, 2)
        r.freeze
        w << "x"
        other_w << "bytes"
        assert_still_sound
      end
    end
    assert_includes log, "bytes"
    assert_includes [[:value, r], [:raised, FrozenError]], (log - ["bytes"]).first
  end

  def test_an_interrupt_that_cannot_be_raised_is_a_type_error_of_its_caller
    in_fiber do |scheduler|
      [[Fiber.current, nil], [Fiber.current, 1], [Fiber.current, IOError], [1, IOError.new], [BasicObject.new, IOError.new]].each do |arguments|
        assert_raises(TypeError) { scheduler.fiber_interrupt(*arguments) }
      end
      assert_still_sound
    end
  end

  def test_a_number_that_is_no_descriptor_is_not_closed
    run_scheduler do |scheduler|
      Fiber.schedule { assert_equal [false, false], [scheduler.io_close(-1), scheduler.io_close(-2**31)]; assert_still_sound }
    end
  end

  # Only on Ruby 3.4 and later. The value that leaves the work to the VM crashes Ruby code.
  def test_work_handed_over_by_ruby_code_is_done_by_a_closed_scheduler_as_well
    closed = Reactor::Scheduler.new.tap(&:close)
    skip "this backend or Ruby offers no operations" unless closed.respond_to?(:blocking_operation_wait)

    close = Class.new { define_method(:close) { |scheduler| scheduler.blocking_operation_wait(-> { :done }) } }.new
    assert_equal :done, closed.blocking_operation_wait(-> { :done })
    assert_equal :done, close.close(closed)
    run_scheduler { |scheduler| Fiber.schedule { assert_equal :done, close.close(scheduler); assert_still_sound } }
  end

  def test_a_range_beyond_the_end_of_the_file_is_prefetched_in_no_time
    in_fiber do |scheduler|
      File.open(__FILE__) do |file|
        [[0, 2**62, 2**62], [2**62, 2**62, 0], [2**63, 1, 2**63]].each { |range| outcome { scheduler.prefetch(file, *range) } }
      end
      assert_still_sound
    end
  end

  # (Elsewhere IO.for_fd refuses it.)
  def test_a_transfer_of_a_file_that_is_not_open_in_its_direction_raises_as_in_plain_ruby
    reading, writing = track(File.open(__FILE__)), track(File.open(File::NULL, "w"))
    assert_like_plain_ruby("read" => -> { IO.for_fd(writing.fileno, "r", autoclose: false).sysread(1) },
                           "write" => -> { IO.for_fd(reading.fileno, "w", autoclose: false).syswrite("x") })
  end

  # Ruby hands the hook a buffer that claims to have nearly 2**64 bytes. Bytes of the file were written beyond its string.
  def test_sysread_of_a_negative_length_writes_nothing_beyond_its_string
    assert_like_plain_ruby([-1, -2**31].to_h { |length| ["sysread #{length}", -> { File.open(__FILE__) { |file| file.sysread(length, +"") } }] })
  end
end

# frozen_string_literal: true

require_relative "helper"
require "tmpdir"

# A fiber whose operations never need to wait yields when its time slice is spent, even in file operations.
class TestTimeSlice < ReactorTest
  # Longer than the time slice.
  SPENT = 0.001
  TIMES = 8

  # Operations that pass through a hook or a patch on every Ruby, and those that Ruby offers to a scheduler from 3.4 on.
  OPERATIONS = {
    new_and_close: ->(path, _) { File.new(path).close },
    open: ->(path, _) { File.open(path, "a") { |file| file.write("x") } },
    read: ->(path, _) { File.read(path) },
    sysopen: ->(path, _) { IO.for_fd(IO.sysopen(path)).close },
    file_write: ->(path, _) { File.write(path, "x") },
    sysread: ->(_, file) { file.sysseek(0).then { file.sysread(1) } },
    syswrite: ->(_, file) { file.syswrite("x") },
    unbuffered_write: ->(_, file) { file.write("x") },
    pread: ->(_, file) { file.pread(1, 0) },
    pwrite: ->(_, file) { file.pwrite("x", 0) }
  }.freeze
  OFFERED = {
    exist: ->(path, _) { File.exist?(path) },
    stat: ->(path, _) { File.stat(path) },
    rename: ->(path, _) { File.rename(path, path) },
    children: ->(path, _) { Dir.children(File.dirname(path)) }
  }.freeze

  # Calls that end at once without a hook, or whose hook does not check the time slice.
  OTHERS = {
    io_stat: ->(_, file) { file.stat },
    seek: ->(_, file) { file.seek(0) },
    truncate: ->(_, file) { file.truncate(100) },
    free_flock: ->(_, file) { file.flock(File::LOCK_EX) },
    free_lock: ->(_, _) { Mutex.new.synchronize { nil } },
    filled_queue: ->(_, _) { Queue.new([1]).pop },
    select: ->(_, file) { IO.select([file], nil, nil, 0) },
    timeout: ->(_, _) { Timeout.timeout(TEST_TIMEOUT) { nil } },
    send_and_recv: ->(_, _) { UNIXSocket.pair.then { |ours, theirs| ours.send("x", 0); theirs.recv(1); [ours, theirs].each(&:close) } }
  }.freeze
  private_constant :SPENT, :TIMES, :OPERATIONS, :OFFERED, :OTHERS

  OPERATIONS.merge(OFFERED).each do |name, operation|
    define_method(:"test_a_fiber_that_repeats_#{name}_lets_another_fiber_run") do
      skip "Ruby offers this to schedulers from 3.4 on" if OFFERED.key?(name) && RUBY_VERSION < "3.4"
      assert_empty file_turns_without_another_fiber(operation)
    end
  end

  # The limits listed in docs/promises.md. When one of these calls begins to yield, correct that page.
  OTHERS.each do |name, operation|
    define_method(:"test_#{name}_does_not_yield") { assert_equal [*1..TIMES], file_turns_without_another_fiber(operation) }
  end

  OFFERED.each do |name, operation|
    define_method(:"test_#{name}_does_not_yield_where_it_has_no_hook") do
      skip "Ruby offers this to the scheduler" unless RUBY_VERSION < "3.4"
      assert_equal [*1..TIMES], file_turns_without_another_fiber(operation)
    end
  end

  def test_a_flush_does_not_yield_before_ruby_4_0
    skip "Ruby 4.0 and later have a hook for it" unless RUBY_VERSION < "4.0"
    Dir.mktmpdir do |folder|
      File.open(File.join(folder, "file"), "w") do |file|
        assert_equal [*1..TIMES], turns_without_another_fiber(TIMES) { file.write("x"); file.flush }
      end
    end
  end

  # The clock is read only once per 16 transfers, because reading it costs more than a small transfer.
  def test_a_fiber_yields_within_16_transfers_of_a_stream
    [pair, pipe.reverse].each do |writing, reading|
      silent = turns_without_another_fiber(40) { writing.syswrite("x"); reading.sysread(1) }
      longest = silent.slice_when { |one, next_one| next_one != one + 1 }.map(&:size).max.to_i # nil if each of them let it run
      assert_operator longest, :<, 8, "pairs of transfers without another fiber"
    end
  end

  def file_turns_without_another_fiber(operation)
    Dir.mktmpdir do |folder|
      path = File.join(folder, "file")
      File.write(path, "x" * 100)
      File.open(path, "r+") do |file|
        file.sync = true
        turns_without_another_fiber(TIMES) { operation.call(path, file) }
      end
    end
  end

  def test_the_order_in_virtual_time_does_not_depend_on_spent_time_slices
    require "reactor/testing"
    log = []
    run_plain(within: 20) do
      Reactor::Testing.virtual_time(backend: BACKEND) do
        2.times { |number| Fiber.schedule { 3.times { spend_slice; Fiber.scheduler.yield_if_slice_spent; log << number } } }
      end
    end
    assert_equal [0, 0, 0, 1, 1, 1], log
  end

  # Runs the operation repeatedly, each time after the time slice was spent. Returns the rounds in which no other ready fiber ran.
  # The first round is not counted: a new operation may run on a worker while the other fiber begins.
  def turns_without_another_fiber(times)
    counts = []
    run_scheduler do |scheduler|
      turns = 0
      Fiber.schedule { until counts.size > times; turns += 1; sleep 0; end }
      Fiber.schedule do
        sleep 0 # while the main program starts the fiber, it writes without yielding
        (times + 1).times { spend_slice; yield; counts << turns }
      end
      scheduler.run
    end
    (1..times).select { |time| counts[time] == counts[time - 1] }
  end

  # A thread's processor time is never ahead of real time, and virtual time does not stop it. (On Windows, that of processes
  # advances in ticks.)
  def spend_slice
    limit = thread_cpu + SPENT
    nil until thread_cpu > limit
  end
end

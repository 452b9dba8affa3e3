# frozen_string_literal: true

require_relative "helper"
require "tempfile"

# An IO that is reopened, or loses one half, while fibers wait for it. Expected values come from threads.
class TestReopen < ReactorTest
  # Longer than the idle time after which the registry first re-arms a wait.
  LOOKED_AT = 0.25

  READS = {
    readpartial: ->(io) { io.readpartial(9) },
    read: ->(io) { io.read(3) },
    gets: ->(io) { io.gets },
    sysread: ->(io) { io.sysread(9) },
    wait_readable: ->(io) { io.wait_readable.equal?(io) }
  }.freeze

  # The outcome of an operation that has been waiting for a while when the block runs.
  def by_a_thread(operation)
    run_plain do
      thread = Thread.new { outcome(&operation) }
      until_asleep(thread)
      yield
      thread.value
    end
  end

  def by_a_fiber(operation)
    found = nil
    run_scheduler do |scheduler|
      Fiber.schedule { found = outcome(&operation) }
      Fiber.schedule { until_parked(scheduler, 1); yield }
    end
    found
  end

  def both(&test) = %i[by_a_thread by_a_fiber].map(&test)

  def file_of(text)
    file = track(Tempfile.new("reopen"))
    file.write(text)
    file.tap(&:flush).path
  end

  # In threads, the wait continues, and notices the new file when the old one wakes it. Here the new file ends the wait. A thread
  # whose status is "sleep" may not have reached its system call. Then it reads the new file at once, and the old pipe has no
  # reader any more.
  def test_a_wait_continues_with_the_new_file_after_a_reopen_with_a_path
    path = file_of("new\n")
    [method(:pipe), method(:pair)].product(READS.keys) do |make, name|
      plain, ours = both do |way|
        io, writing = make.call
        send(way, -> { READS[name].call(io) }) do
          io.reopen(path)
          writing << "old\n" if way == :by_a_thread
        rescue Errno::EPIPE
          nil
        end
      end
      assert_equal plain, ours, "#{make.name} #{name}"
      assert_equal :value, ours.first
    end
  end

  def test_a_reopen_raises_in_a_write_to_a_full_pipe_as_in_threads
    plain, ours = both do |way|
      _, writing = pipe
      _, wide = pipe
      fill(writing)
      send(way, -> { writing.write("x") }) { writing.reopen(wide) }
    end
    assert_equal plain, ours
  end

  def test_select_continues_with_the_new_file
    io, = pipe
    other, writing = pipe
    found = by_a_fiber(-> { IO.select([io]) }) { io.reopen(other); writing << "x" }
    assert_equal [:value, [[io], [], []]], found
  end

  def test_an_io_that_is_reopened_twice_and_then_closed_raises_in_its_waiter
    log = []
    io, = pipe
    path = file_of("")
    run_scheduler do |scheduler|
      Fiber.schedule do
        log << outcome { io.readpartial(1) }
        io.reopen(pipe.first)
        log << outcome { io.readpartial(1) }
      end
      Fiber.schedule do
        io.reopen(path)
        sleep 0 until log.size == 1
        until_parked(scheduler, 1)
        sleep LOOKED_AT
        io.close
      end
    end
    assert_equal [[:raised, EOFError], [:raised, IOError]], log
  end

  # What is remembered of the old file must not make the next read wait until the registry re-arms it.
  def test_the_first_read_after_a_reopen_finds_the_data
    looks = nil
    text = nil
    run_scheduler do |scheduler|
      io, writing = pair
      other, further = pair
      got = 0
      Fiber.schedule { 2.times { io.readpartial(9); got += 1 } } # the second read begins registered, and ends drained
      Fiber.schedule do
        2.times do |i|
          writing << "old"
          sleep 0 until got > i
        end
        further << "new"
        io.reopen(other)
        looks = scheduler.stats[:rearmed]
        text = io.readpartial(9)
        looks = scheduler.stats[:rearmed] - looks
      end
    end
    assert_equal "new", text
    assert_equal 0, looks
  end

  # dup2(2) by C code: no scheduler is told.
  def replace_unseen(io, file) = IO.instance_method(:reactor_io_reopen).bind_call(IO.for_fd(io.fileno, autoclose: false), file)

  def test_a_descriptor_replaced_by_c_code_is_looked_at_more_than_once
    text = nil
    run_scheduler do |scheduler|
      io, = pipe
      other, writing = pipe
      Fiber.schedule { text = io.readpartial(9) }
      Fiber.schedule do
        sleep LOOKED_AT
        eventually { scheduler.stats[:rearmed].positive? }
        replace_unseen(io, other)
        writing << "new"
      end
    end
    assert_equal "new", text
  end

  # Each closes one of the two ends, or both, without IO#close.
  HALVES = {
    "one end of a pipe" => [->(test) { test.pipe }, :first, ->(ios) { ios.first.close_read }],
    "the other end" => [->(test) { test.pipe.tap { |ios| test.fill(ios.last) } }, :last, ->(ios) { ios.last.close_write }],
    "the wrong half" => [->(test) { test.pipe }, :first, ->(ios) { ios.first.close_write rescue ios.last << "x" }],
    "half of a socket" => [->(test) { test.pair }, :first, ->(ios) { ios.first.close_read }],
    "the other half of it" => [->(test) { test.pair }, :first, ->(ios) { ios.first.close_write; ios.last << "x" }],
    "both halves of it" => [->(test) { test.pair }, :first, ->(ios) { ios.first.close_write; ios.first.close_read }],
    "a process" => [->(test) { [test.track(IO.popen("cat", "r+"))] }, :first, ->(ios) { ios.first.close }]
  }.freeze

  HALVES.each do |name, (make, which, close)|
    define_method("test_closing_#{name.tr(" ", "_")}_ends_the_wait_as_in_threads") do
      plain, ours = both do |way|
        ios = make.call(self)
        io = ios.public_send(which)
        send(way, which == :last ? -> { io.write("x" * 100) } : -> { io.readpartial(1) }) { close.call(ios) }
      end
      assert_equal plain, ours
    end
  end

  # A thread remains in the read until the process writes, and then gets EBADF.
  def test_closing_the_reading_half_of_a_process_raises_in_its_reader
    found = by_a_fiber(-> { (@process = track(IO.popen("cat", "r+"))).readpartial(1) }) { @process.close_read }
    assert_equal [:raised, IOError], found
  end

  # The object that writes is not the one being closed, so IO#close waits for no thread that writes: a thread of plain Ruby that is
  # woken late polls a closed descriptor, and raises IO::TimeoutError instead.
  def test_closing_a_process_raises_in_its_writer
    found = by_a_fiber(-> { (@process = track(IO.popen("sleep 1", "r+"))).write("x" * 1_000_000) }) { @process.close }
    assert_equal [:raised, IOError], found
  end
end

# frozen_string_literal: true

require_relative "helper"
require "json"
require "objspace"

# Parked fibers are reachable only through the scheduler: the GC must mark and move them.
class TestGC < ReactorTest
  COUNT = STRESS ? 4 : 200

  def collect
    3.times { GC.start }
    GC.compact if GC.respond_to?(:compact)
  end

  # Parks fibers in every kind of wait, without another reference to them, then yields and ends the waits.
  def with_parked(count)
    log = []
    pipes = Array.new(count) { IO.pipe }
    queue = Queue.new
    condition = ConditionVariable.new
    mutex = Mutex.new
    go = false
    run_scheduler do
      count.times do |i|
        Fiber.schedule { local = "io #{i}"; pipes[i][0].wait_readable; log << local }
        Fiber.schedule { local = "read #{i}"; pipes[i][0].readpartial(1); log << local }
        Fiber.schedule { local = "select #{i}"; IO.select([pipes[i][0]]); log << local }
        Fiber.schedule { local = "queue #{i}"; queue.pop; log << local }
        Fiber.schedule { local = "cv #{i}"; mutex.synchronize { condition.wait(mutex) until go }; log << local }
        Fiber.schedule { local = "sleep #{i}"; sleep 0.1; log << local }
        Fiber.schedule { local = "timeout #{i}"; Timeout.timeout(0.1) { sleep } rescue log << local }
      end
      yield
      Fiber.schedule do
        pipes.each { |_, w| w << "xx" }
        count.times { queue << true }
        mutex.synchronize { go = true; condition.broadcast }
      end
    end
    expected = %w[io read select queue cv sleep timeout].flat_map { |kind| Array.new(count) { |i| "#{kind} #{i}" } }
    assert_equal expected.sort, log.sort
  ensure
    pipes&.flatten&.each(&:close)
  end

  def test_parked_fibers_survive_collection_and_compaction
    with_parked(COUNT) do
      collect
      GC.verify_compaction_references(expand_heap: true, toward: :empty) if GC.respond_to?(:verify_compaction_references) && !STRESS
    end
  end

  def test_an_io_is_collectable_after_a_wait_that_timed_out
    skip_under_stress
    map = ObjectSpace::WeakMap.new
    run_scheduler do
      Fiber.schedule do
        50.times do
          r, w = IO.pipe
          map[r] = true
          assert_nil r.wait_readable(0.0001)
          w.close
        end
        nil
      end
      Fiber.scheduler.run
      assert eventually(TEST_TIMEOUT / 2) { GC.start; map.size < 25 }, "#{map.size} of 50 descriptors are still held"
      map.keys.each(&:close) # a few are still referenced from the stack
    end
  end

  # The VM accesses an ended fiber when the switch to it returns. Up to Ruby 3.4.10 and 4.0.5, nothing in the VM keeps the fiber
  # alive.
  def test_a_fiber_that_has_ended_stays_until_the_switch_to_it_returns
    skip_under_stress
    ended = ObjectSpace::WeakMap.new
    first, second, go, done = Array.new(4) { Queue.new }
    returned = 0
    run_scheduler do
      20.times do
        Fiber.schedule { first.pop; go.pop; returned += 1 }
        Fiber.schedule { ended[Fiber.current] = true; second.pop; done << true }
      end
      Fiber.schedule do
        20.times { first << true; second << true; done.pop } # the first one switches to the second one, which ends
        collect
        assert_equal [20, 0], [ended.size, returned]
        20.times { go << true }
      end
      Fiber.scheduler.run
      assert_equal 20, returned
      assert eventually(TEST_TIMEOUT / 2) { GC.start; ended.size < 10 }, "#{ended.size} of 20 fibers are still held"
    end
  end

  def address(object) = JSON.parse(ObjectSpace.dump(object)).fetch("address")

  # Makes pairs that wait once. Returns the address of the first IO of each, and its number before and after. The block closes
  # them, or leaves that to the collector.
  def numbers_of(make)
    Array.new(STRESS ? 4 : 40) do
      ios = make.call
      before = Reactor::Internal.io_number(ios.first)
      ios.first.wait_readable(0.00001)
      [address(ios.first), before, Reactor::Internal.io_number(ios.first)].tap { yield ios }
    end
  end

  { pipe: IO.method(:pipe), socket: UNIXSocket.method(:pair) }.each do |kind, make|
    define_method("test_a_#{kind}_at_the_address_or_the_descriptor_of_an_earlier_one_has_another_number") do
      rows = []
      in_fiber do
        [-> { GC.start(full_mark: false) }, -> { GC.start }, -> { collect }].each do |collection|
          3.times { rows.concat(numbers_of(make) { |ios| ios.each(&:close) }, numbers_of(make, &:clear)).tap { collection.call } }
        end
      end
      GC.start # closes those that were not
      addresses, before, after = rows.transpose
      assert_operator addresses.uniq.size, :<, addresses.size, "no address was used again"
      assert_empty before.compact
      assert_equal after, after.compact.uniq
    end
  end

  def test_two_sockets_on_one_descriptor_keep_their_numbers
    a, = pair
    other = UNIXSocket.for_fd(a.fileno)
    copy = a.dup
    rounds = []
    in_fiber do
      3.times do
        [a, other, copy].each { |socket| socket.wait_readable(0.00001) }
        rounds << [a, other, copy].map { |socket| Reactor::Internal.io_number(socket) }
      end
      copy.close
      copy = a.clone
      copy.wait_readable(0.00001)
      rounds << [a, other, copy].map { |socket| Reactor::Internal.io_number(socket) }
    end
    *same, last = rounds
    assert_equal 1, same.uniq.size
    assert_equal same.first.first(2), last.first(2)
    assert_equal 4, (same.first + last).compact.uniq.size
  ensure
    other&.autoclose = false
    copy&.close
  end

  def test_a_socket_that_compaction_has_moved_waits_and_is_closed
    skip "no GC.verify_compaction_references here" unless GC.respond_to?(:verify_compaction_references)

    sockets = Array.new(10) { pair }.flatten
    log = []
    in_fiber do
      sockets.each { |socket| socket.wait_readable(0.00001) }
      GC.verify_compaction_references(expand_heap: true, toward: :empty)
      sockets.each { |socket| Fiber.schedule { log << assert_raises(IOError) { socket.readpartial(1) } } }
      sockets.each(&:close)
    end
    assert_equal sockets.size, log.size
  end

  # In a child, because its heap is small. Ruby 3.4 resolves each name on two threads and allocates three times as much as 3.3, so
  # a collection at every allocation takes a minute (REACTOR_LONG=1). By default, every fifth connection runs under GC.stress.
  def test_forty_connections_by_name_under_gc_stress
    skip_under_stress
    out = child_says(<<~RUBY, LONG ? 1 : 5, within: 240)
      require "socket"
      count, every = 40, Integer(ARGV[0])
      server = TCPServer.new("127.0.0.1", 0)
      server.listen(count)
      got = []
      Fiber.set_scheduler(Reactor::Scheduler.new)
      stress = ->(i) { GC.stress = (i % every).zero? }
      Fiber.schedule { count.times { |i| server.accept.then { |s| stress[i]; s.write(i.to_s); s.close } } }
      count.times { |i| stress[i]; Fiber.schedule { Socket.tcp("localhost", server.addr[1]) { |s| stress[i]; got << s.read } } }
      Fiber.scheduler.run
      GC.stress = false
      puts got.map(&:to_i).sort == (0...count).to_a
    RUBY
    assert_equal "true\n", out
  end
end

# frozen_string_literal: true

require_relative "helper"
require "monitor"

# Scheduler#holders: fibers that wait while they hold a lock. test_rails.rb covers fibers that hold a connection.
class TestHolders < ReactorTest
  # Runs the blocks in fibers, then yields what the scheduler reports for each of them, in their order.
  def holding(*blocks)
    run_scheduler do |scheduler|
      fibers = blocks.map { |block| Fiber.schedule(&block) }
      holders = scheduler.holders(longer_than: 0)
      yield fibers.map { |fiber| holders.select { |holder| holder.status.fiber.equal?(fiber) } }, scheduler
    ensure
      fibers&.each(&:kill)
    end
  end

  # The kinds of locks as this Ruby names them.
  def named(kind) = RUBY_VERSION < "3.4" ? "Mutex or Monitor" : kind

  def assert_holds(kind, line, holders)
    assert_equal [named(kind)], holders.map(&:what)
    assert_match(/test_holders\.rb:#{line}:in /, holders.first.place)
  end

  def test_the_fiber_that_holds_a_lock_across_a_wait_is_named_and_those_that_wait_for_it_are_not
    { "Mutex" => Thread::Mutex.new, "Monitor" => Monitor.new }.each do |kind, lock|
      line = __LINE__ + 1
      holding(-> { lock.synchronize { [1].each { sleep } } }, -> { lock.synchronize { nil } }) do |(holder, waiter), scheduler|
        assert_holds kind, line, holder
        assert_equal [], waiter
        assert_equal :sleep, holder.first.status.hook
        said = holder.first.to_s
        assert_match(/\A#<Fiber:.*> holds a #{named(kind)} since .*test_holders\.rb:#{line}:in .*, waiting \d+\.\d+ s asleep until woken\z/, said)
        assert_equal [], scheduler.holders(longer_than: 3600)
      end
    end
  end

  def test_the_place_is_the_callers_of_the_mixin
    object = Object.new.extend(MonitorMixin)
    line = __LINE__ + 1
    holding(-> { object.synchronize { sleep } }, -> { object.synchronize { nil } }) do |(holder, waiter)|
      assert_holds "Monitor", line, holder
      assert_equal [], waiter
    end
  end

  def test_a_lock_that_is_given_up_during_the_wait_is_not_held_but_those_around_it_are
    mutex, monitor, outer = Thread::Mutex.new, Monitor.new, Thread::Mutex.new
    changed, condition = Thread::ConditionVariable.new, monitor.new_cond
    line = __LINE__ + 1
    nested = -> { outer.synchronize { mutex.synchronize { changed.wait(mutex) } } }
    waits = [-> { monitor.synchronize { condition.wait } }, -> { mutex.synchronize { changed.wait(mutex, 60) } }, nested]
    holding(*waits) do |(on_monitor, on_mutex, in_outer)|
      assert_equal [[], []], [on_monitor, on_mutex]
      assert_holds "Mutex", line, in_outer
    end
  end

  def test_a_permit_of_a_semaphore_is_held
    semaphore = Reactor::Semaphore.new(1)
    line = __LINE__ + 1
    [-> { semaphore.acquire { sleep } }, -> { semaphore.try_acquire { sleep } }].each do |hold|
      holding(hold, -> { semaphore.acquire { flunk } }) do |(holder, waiter)|
        assert_equal ["permit of #{semaphore.inspect}"], holder.map(&:what)
        assert_match(/test_holders\.rb:#{line}:in /, holder.first.place)
        assert_equal [], waiter
      end
    end
  end

  def places(holders) = holders.map { |holder| holder.place[/test_holders\.rb:\d+.* or |test_holders\.rb:\d+/] }

  def test_each_permit_is_held_since_the_line_that_took_it
    semaphore, other = Reactor::Semaphore.new(3), Reactor::Semaphore.new(1)
    line = __LINE__ + 1
    nested = lambda do
      semaphore.acquire do
        semaphore.acquire { other.acquire }
      end
    end
    other.acquire
    two = -> { semaphore.acquire { Reactor::Semaphore.new(1).acquire { sleep } } }
    holding(nested, two) do |((inner, outer), (first, second))|
      assert_equal ["test_holders.rb:#{line + 2}", "test_holders.rb:#{line + 1}"], places([inner, outer])
      assert_equal [first.place], [second.place].uniq, "which line took which is not known"
      assert_equal 2, first.place.scan(/test_holders\.rb:#{line + 6}/).size
    end
  end

  def test_the_first_caller_of_a_rate_limit_holds_nothing
    limit = Reactor::RateLimit.new(1, per: 60)
    limit.acquire
    semaphore = Reactor::Semaphore.new(1)
    holding(-> { limit.acquire }, -> { semaphore.acquire { limit.acquire } }) do |(first, second)|
      assert_equal [], first
      assert_equal ["permit of #{semaphore.inspect}"], second.map(&:what)
    end
  end

  def test_a_fiber_whose_enumerator_waits_is_named
    semaphore, mutex, queue = Reactor::Semaphore.new(1), Thread::Mutex.new, Thread::Queue.new
    waiting = -> { Enumerator.new { |yielder| yielder << queue.pop }.next }
    line = __LINE__ + 1
    holding(-> { semaphore.acquire { waiting.() } }, -> { mutex.synchronize { waiting.() } }) do |((permit), (lock)), scheduler|
      assert_equal [:away], [permit, lock].map { |holder| holder.status.state }.uniq
      assert_match(/test_holders\.rb:#{line}:in /, permit.place)
      assert_equal named("Mutex"), lock.what
      assert_match(/away \d+\.\d+ s\z/, lock.to_s)
      assert_equal [], scheduler.holders(longer_than: 3600)
    end
  end

  # ObjectSpace.each_object omits most objects in a process that has had a second Ractor.
  def test_permits_and_ios_are_found_in_a_process_that_has_had_a_ractor
    assert_equal "1\nIO\n", child_says(<<~'RUBY')
      Warning[:experimental] = false
      ractor = Ractor.new { 1 }
      ractor.respond_to?(:value) ? ractor.value : ractor.take
      semaphore, (r, w) = Reactor::Semaphore.new(1), IO.pipe
      Reactor.run do
        Fiber.schedule { semaphore.acquire { r.read(1) } }
        holders = Fiber.scheduler.holders(longer_than: 0)
        puts holders.size, holders.first.status.io.class
        w << "x"
      end
    RUBY
  end

  def test_a_fiber_that_ends_while_another_thread_asks_is_not_named
    semaphore, finish = Reactor::Semaphore.new(50), clock + 0.3
    run_scheduler do |scheduler|
      places = Thread.new { scheduler.holders(longer_than: 0).each { |holder| assert holder.place, holder.inspect } while clock < finish }
      Fiber.schedule { 50.times { Fiber.schedule { semaphore.acquire { sleep rand * 0.003 } } } && sleep(0.002) while clock < finish }
      scheduler.run
      places.value
    end
  end

  def test_a_connection_of_the_gem_connection_pool_is_held
    begin
      require "connection_pool"
    rescue LoadError => error
      skip "connection_pool cannot be loaded: #{error.message}"
    end
    connections = ConnectionPool.new(size: 1) { Object.new }
    line = __LINE__ + 1
    holding(-> { connections.with { [1].each { sleep } } }, -> { connections.with { flunk } }) do |(holder, waiter)|
      assert_equal ["connection of a ConnectionPool"], holder.map(&:what)
      assert_match(/test_holders\.rb:#{line}:in /, holder.first.place)
      assert_equal [], waiter
    end
  end

  # The method takes no lock.
  def synchronize = yield

  def wait = sleep

  def test_methods_of_the_program_of_these_names_are_nothing_else_than_methods
    mutex = Thread::Mutex.new
    line = __LINE__ + 1
    holding(-> { synchronize { sleep } }, -> { mutex.synchronize { wait } }) do |(other, holder)|
      assert_equal [], other
      assert_holds "Mutex", line, holder
    end
  end

  def test_each_lock_of_a_fiber_is_named_the_innermost_first
    outer, inner = Thread::Mutex.new, Thread::Mutex.new
    r, = pipe
    holding(-> { outer.synchronize { inner.synchronize { r.read(1) } } }) do |(holders)|
      assert_equal 2, holders.size
      assert_equal [:io], holders.map { |holder| holder.status.hook }.uniq
    end
  end

  def test_a_fiber_that_is_ready_or_running_is_not_named
    mutex = Thread::Mutex.new
    woken = -> { mutex.synchronize { sleep } }
    run_scheduler do |scheduler|
      fiber = Fiber.schedule(&woken)
      scheduler.unblock(nil, fiber)
      Thread::Mutex.new.synchronize { assert_equal [], scheduler.holders(longer_than: 0) }
    end
  end

  def test_a_dump_shows_the_holders
    mutex = Thread::Mutex.new
    holding(-> { mutex.synchronize { sleep } }) do |_, scheduler|
      assert_match(/^  #<Fiber:.* holds a #{named("Mutex")} since /, scheduler.dump)
    end
  end

  def test_a_dump_shows_one_of_the_fibers_that_wait_alike_after_those_that_hold_something
    mutex = Thread::Mutex.new
    alike = -> { sleep }
    holding(alike, alike, alike, -> { mutex.synchronize { sleep } }) do |_, scheduler|
      lines = scheduler.dump.lines.map(&:strip)
      assert_equal 1, lines.count("and 2 more like it")
      assert_match(/holds a/, lines[1])
      assert_equal 3, lines.grep(/waiting .* asleep/).size, lines.join("\n")
    end
  end

  def test_another_thread_may_ask
    mutex = Thread::Mutex.new
    run_scheduler do |scheduler|
      fiber = Fiber.schedule { mutex.synchronize { sleep } }
      Fiber.schedule do
        assert_equal [fiber], Thread.new { scheduler.holders(longer_than: 0).map { |holder| holder.status.fiber } }.value
        fiber.kill
      end
    end
  end
end

# frozen_string_literal: true

require_relative "helper"

# What dumps and reports of stalls and deadlocks call a fiber: its name, and where it was made.
class TestFiberNames < ReactorTest
  # A scheduler with options, on a thread of its own.
  def with_scheduler(**options)
    run_plain do
      scheduler = Reactor::Scheduler.new(**options)
      Fiber.set_scheduler(scheduler)
      yield scheduler
      scheduler.run
    end
  end

  def test_a_fiber_has_the_name_that_it_was_given
    run_scheduler do |scheduler|
      named = Fiber.schedule { Reactor.fiber_name = :"session 7"; sleep }
      plain = Fiber.schedule { sleep }
      assert_equal ["session 7", nil, nil], [Reactor.fiber_name(named), Reactor.fiber_name(plain), Reactor.fiber_name]
      dump = scheduler.dump
      assert_match(/^  fiber "session 7" waiting .*asleep until woken\n    #{Regexp.escape(__FILE__)}:#{__LINE__ - 4}:in /, dump)
      assert_includes dump, plain.inspect
      refute_includes dump, " made at "
      Fiber.schedule { Reactor.fiber_name = "short"; Reactor.fiber_name = nil; assert_nil Reactor.fiber_name }
      [named, plain].each(&:kill)
    end
  end

  def test_a_deadlock_names_its_fibers_where_they_were_made_and_where_they_stand
    child = run_child(<<~'RUBY')
      Fiber.set_scheduler(Reactor::Scheduler.new(birthplaces: true))
      Fiber.schedule do
        Reactor.fiber_name = "consumer"
        Thread::Queue.new.pop
      end
      Fiber.scheduler.run
    RUBY
    assert_match(/No live threads left/, child.err)
    assert_match(/fiber "consumer" made at -e:3 waiting .*\n(?:    <internal:.*\n)*    -e:5:in /, child.err)
  end

  def test_a_stall_names_its_fiber_where_it_was_made_and_where_it_stands
    stalls = Thread::Queue.new
    line = __LINE__ + 2
    with_scheduler(birthplaces: true, stall: 0.02, on_stall: ->(stall) { stalls << stall }) do |scheduler|
      Fiber.schedule do
        Reactor.fiber_name = "blocker"
        Fiber.blocking { sleep 0.05 until stalls.size >= 1 }
        sleep 0.005 until scheduler.slowest_stalls.any?
      end
    end
    found = Array.new(stalls.size) { stalls.pop }.find { |stall| stall.fiber && !stall.over }
    assert_match(/\Areactor: fiber "blocker" made at #{Regexp.escape(__FILE__)}:#{line} has held the loop for .*:#{line + 2}:in /m, found.to_s)
    assert_match(/the stall of fiber "blocker" made at .* ended after/, found.with(over: true).to_s)
    assert_match(/the root fiber has held/, found.with(fiber: nil).to_s)
  end

  def test_a_watchers_fiber_was_made_where_its_block_stands
    r, w = pipe
    place = nil
    line = __LINE__ + 3
    with_scheduler(birthplaces: true) do |scheduler|
      w << "x"
      scheduler.on_ready(r, IO::READABLE) { place = Reactor::FiberName.birthplace(Fiber.current) }
    end
    assert_equal "#{__FILE__}:#{line}", place
  end

  def test_the_fibers_of_run_and_of_a_group_were_made_where_their_blocks_are
    places = []
    line = __LINE__ + 2
    run_plain do
      Reactor.run(birthplaces: true) do
        places << Reactor::FiberName.birthplace(Fiber.current)
        Reactor.group { |group| group.async { places << Reactor::FiberName.birthplace(Fiber.current) } }
      end
    end
    assert_equal ["#{__FILE__}:#{line}", "#{__FILE__}:#{line + 2}"], places
  end
end

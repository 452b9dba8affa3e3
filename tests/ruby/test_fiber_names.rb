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
      line = "#{Regexp.escape(__FILE__)}:#{__LINE__ - 4}"
      assert_match(/^  fiber "session 7" made at #{line} waiting .*asleep until woken\n    #{line}:in /, dump)
      assert_includes dump, described(plain)
      Fiber.schedule { Reactor.fiber_name = "short"; Reactor.fiber_name = nil; assert_nil Reactor.fiber_name }
      [named, plain].each(&:kill)
    end
  end

  def test_a_deadlock_names_its_fibers_where_they_were_made_and_where_they_stand
    child = run_child(<<~'RUBY')
      Fiber.set_scheduler(Reactor::Scheduler.new)
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
    with_scheduler(stall: 0.02, on_stall: ->(stall) { stalls << [stall, stall.to_s] }) do |scheduler|
      Fiber.schedule do
        Reactor.fiber_name = "blocker"
        Fiber.blocking { sleep 0.05 until stalls.size >= 1 }
        sleep 0.005 until scheduler.slowest_stalls.any?
      end
    end
    found, said = Array.new(stalls.size) { stalls.pop }.find { |stall,| stall.fiber && !stall.over }
    assert_match(/\Areactor: fiber "blocker" made at #{Regexp.escape(__FILE__)}:#{line} has held the loop for .*:#{line + 2}:in /m, said)
    assert_match(/the stall of fiber "blocker" ended after/, found.with(over: true).to_s)
    assert_match(/the root fiber has held/, found.with(fiber: nil).to_s)
  end

  # How reports show a fiber.
  def described(fiber = Fiber.current) = Reactor.const_get(:FiberName).describe(fiber)

  # Each block is given its location, and stores beside it how its fiber is shown.
  def places(&block)
    seen = []
    run_plain { Reactor.run { block.call(->(line) { seen << [line, described] }) } }
    refute_empty seen
    seen.each { |line, shown| assert_equal "\#<Fiber:0x… #{__FILE__}:#{line} (resumed)>", shown.sub(/0x\h+/, "0x…") }
    seen
  end

  def test_a_fiber_is_shown_where_the_programs_block_stands
    r, w = pipe
    w << "x"
    places do |tell|
      Fiber.schedule { tell.(__LINE__) }
      Fiber.schedule { sleep 0; tell.(__LINE__) }
      Fiber.scheduler.on_ready(r) { sleep 0; tell.(__LINE__) }
      Reactor.group { |group| group.async { tell.(__LINE__) } }
      Reactor.group { |group| group.map([1, 2]) { tell.(__LINE__) } }
      block = proc { tell.(__LINE__) }
      Fiber.schedule(&block)
      listener = TCPServer.new("127.0.0.1", 0)
      server = Reactor::Server.new(listener) { |socket| socket.getc; tell.(__LINE__); false }.start
      TCPSocket.open("127.0.0.1", listener.local_address.ip_port) { |client| client.write("x"); client.read }
      server.stop
    end
  end

  def test_the_fiber_of_a_run_is_shown_where_its_block_stands
    shown = []
    run_plain { Reactor.run { shown << described } }
    run_plain { Reactor.group { shown << described } }
    shown.each_with_index { |text, index| assert_includes text, " #{__FILE__}:#{__LINE__ - 2 + index} (" }
  end

  def test_no_line_of_this_library_is_shown
    run_scheduler do
      ended = Fiber.schedule { sleep 0 }
      method = Fiber.schedule(&method(:sleep))
      Fiber.scheduler.yield while ended.alive?
      assert_match(/\A#<Fiber:0x\h+ \(terminated\)>\z/, described(ended))
      assert_match(/\A#<Fiber:0x\h+(?: <internal:\S+)? \(suspended\)>\z/, described(method))
      method.kill
    end
  end

  def test_other_fibers_are_shown_as_by_ruby
    run_scheduler do
      assert_match(/ #{Regexp.escape(__FILE__)}:#{__LINE__} \(created\)>/, described(Fiber.new { nil }))
      assert_match(/\A#<Fiber:0x\h+ \(resumed\)>\z/, described)
    end
  end
end

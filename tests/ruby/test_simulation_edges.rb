# frozen_string_literal: true

require_relative "simulated"

# What a simulated program, or its test, does at the edge of its world.
class TestSimulationEdges < SimulationTest
  # --- children and threads take real time -----------------------------------------------------------------------------

  # Minitest compares long strings with diff(1), a child.
  def test_an_assertion_that_runs_a_child_fails_the_test
    [{}, { until: 100 }].each do |options|
      assert_raises(Minitest::Assertion) do
        simulate(**options) do |world|
          world.host("ticks") { loop { sleep 0.7 } }
          world.host("host") { sleep 1; assert_equal "a" * 100, "b" * 100 }
          world.client("client") { sleep 50 }
        end
      end
    end
  end

  def test_the_clock_waits_for_an_allowed_child
    times = []
    wait = [
      -> { `echo`; nil }, -> { Process.wait(spawn("true")) }, -> { Process.detach(spawn("true")).join }, -> { system("true") },
      -> { IO.popen("cat", "r+") { |child| child.write("x"); child.close_write; child.read } }
    ]
    simulate(allow: %i[children], until: 100) do |world|
      world.host("ticks") { loop { sleep 1 } }
      world.client("client") { wait.each { |way| way.call; times << world.time } }
    end
    assert_equal [0] * 5, times
  end

  def test_the_clock_waits_for_an_allowed_thread_unless_it_is_idle
    times = []
    told = Queue.new
    wait = [
      -> { Thread.new { sleep 0.001 }.join }, -> { Thread.new { sleep 0.001; told << 1 } && told.pop },
      -> { Thread.new { told << raised { TCPSocket.new("host", 80) } } && told.pop } # a thread has no part in the network
    ]
    simulate(allow: %i[threads], until: 100) do |world|
      world.host("ticks") { loop { sleep 1 } }
      world.client("client") do
        times.concat(wait.map { |way| [way.call.class, world.time] })
        idle = Thread.new { Queue.new.pop }
        sleep 5
        idle.kill
      end
    end
    assert_equal [[Thread, 0], [Integer, 0], [Class, 0]], times
  end

  # --- the random numbers of the process -------------------------------------------------------------------------------

  def test_the_sequence_of_the_process_continues
    draw = -> { srand(42) && Array.new(5) { simulate { |world| world.client("client") { rand } } && rand } }
    drawn = run_plain { draw.call }
    assert_equal drawn.uniq, drawn
    assert_equal drawn, run_plain { draw.call }
  end

  def test_threads_simulate_one_after_the_other
    program = ->(world) { world.client("client") { 20.times { sleep rand; world.log(rand(1000)) } } }
    run = -> { Reactor::Testing.simulate(seed: 5, twice: true, backend: SIMULATED, &program).digest }
    assert_equal 1, Array.new(4) { Thread.new { Array.new(5) { run.call } } }.flat_map(&:value).uniq.size
  end

  # --- the end ---------------------------------------------------------------------------------------------------------

  def test_an_interrupt_ends_everything_at_once
    last = ->(world, stop) { world.host("host") { begin; sleep; ensure; stop.call; end } }
    places = {
      client: ->(world, stop) { world.client("client") { sleep 1; stop.call } },
      later: ->(world, stop) { world.client("client") { Fiber.schedule { sleep 1; stop.call }; sleep 2 } },
      moment: ->(world, stop) { world.at(1, &stop); world.client("client") { sleep 2 } },
      crash: ->(world, stop) { last.call(world, stop); world.at(1) { world.crash("host") }; world.client("client") { sleep 2 } },
      ending: ->(world, stop) { last.call(world, stop); world.client("client") { sleep 2 } },
      block: ->(_, stop) { stop.call }
    }
    places.each do |place, program|
      [-> { raise Interrupt }, -> { exit 3 }].each do |stop|
        runs = 0
        ended = assert_raises(Interrupt, SystemExit, place) { explore(runs: 9) { |world| runs += 1; program.call(world, stop) } }
        assert_equal 1, runs
        assert_equal 3, ended.status if ended.is_a?(SystemExit)
        assert_raises(ended.class) { simulate(twice: true) { |world| runs += 1; program.call(world, stop) } }
        assert_equal 2, runs
      end
    end
  end

  def test_a_time_limit_around_a_simulation
    endless = ->(world) { world.client("client") { loop { sleep 1 } } }
    limit = -> { Timeout.timeout(0.01) { Reactor::Testing.simulate(seed: 1, until: 1e9, backend: SIMULATED, &endless) } }
    assert_raises(Timeout::Error) { run_plain(&limit) }
  end

  def test_a_client_that_would_continue_at_the_very_end_is_not_stuck
    SEEDS.each do |seed|
      simulate(seed, until: 10) { |world| 2.times { |i| world.client("client #{i}") { loop { sleep 1 } } } }
    end
  end

  # --- errors ----------------------------------------------------------------------------------------------------------

  Fixed = Class.new(StandardError) { def message = "fixed" }
  FirstLine = Class.new(StandardError) { def message = super.lines.first }
  Coded = Class.new(StandardError) { def exception(*given) = given.empty? ? self : self.class.new(Integer(given.first)) }

  def test_every_error_names_the_seed
    [Fixed.new, FirstLine.new("mine"), Coded.new("5"), KeyError.new("frozen").freeze].each do |error|
      program = ->(world) { world.client("client") { raise error } }
      told = assert_raises(error.class) { simulate(17, &program) }
      assert_match(/\A#{Regexp.escape(error.message)}\n\(simulated with seed: 17\)\n/, told.message)
      assert_match(/test_simulation_edges\.rb/, told.backtrace.first) unless error.frozen?
      explored = assert_raises(error.class) { explore(runs: 1, seed: 17, &program) }
      assert_match(/\(simulated with seed: 17, yields: 0, faults: 0\)/, explored.message)
    end
  end

  # --- arguments -------------------------------------------------------------------------------------------------------

  WRONG = [ArgumentError, TypeError, RangeError].freeze

  def test_wrong_arguments_are_refused_before_anything_is_opened
    wrong = [
      { seed: nil }, { seed: -5 }, { seed: 1.7 }, { seed: "3" }, { until: -1 }, { until: Float::NAN }, { at: nil }, { at: Float::NAN },
      { at: 1i }, { yields: "abc" }, { yields: -1 }, { faults: Float::NAN }, { allow: :threads }, { allow: nil }, { allow: ["threads"] },
      { other: 1 }, { backend: :none }
    ]
    before = descriptors
    run_plain do
      GC.disable
      wrong.each do |options|
        error = assert_raises(*WRONG, options.inspect) { Reactor::Testing.simulate(seed: 1, **options) { flunk } }
        assert_match(/#{options.keys.first}/, error.message)
        assert_raises(*WRONG) { Reactor::Testing.explore(runs: 1, **options) { flunk } }
      end
      assert_raises(TypeError) { Reactor::Testing.explore(runs: 1.5) { flunk } }
      assert_equal [], leaked_descriptors(before)
    ensure
      GC.enable
    end
  end

  def test_wrong_arguments_of_a_world
    wrong = [
      -> { _1.link("srv", "nobody") }, -> { _1.link("nobody") }, -> { _1.link("srv", "srv") }, -> { _1.link(nil) },
      -> { _1.partition("srv", "srv") },
      -> { _1.host(:bank) { nil } }, -> { _1.host("localhost") { nil } }, -> { _1.host("10.0.0.1") { nil } }, -> { _1.host(nil) { nil } },
      -> { _1.host("") { nil } }, -> { _1.check }, -> { _1.at(1) }, -> { _1.at("1") { nil } }, -> { _1.at(nil) { nil } },
      -> { _1.at(Float::NAN) { nil } }, -> { _1.link(latency: Float::INFINITY) }, -> { _1.link(latency: 1i) }, -> { _1.link(drop: 0..1) },
      -> { _1.link(drop: nil) }
    ]
    wrong.each_with_index do |way, i|
      assert_raises(*WRONG, i.to_s) do
        simulate do |world|
          world.host("srv") { sleep }
          world.client("client") { sleep 1 }
          way.call(world)
        end
      end
    end
    assert_raises(ArgumentError) do
      simulate { |world| world.client("client") { world.link("client", "nobody") } }
    end
  end
end

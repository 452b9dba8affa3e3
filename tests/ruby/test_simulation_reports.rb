# frozen_string_literal: true

require_relative "simulated"

# What a simulation tells: divergences, failures, the timeline.
class TestSimulationReports < SimulationTest
  # --- twice -------------------------------------------------------------------------------------------------------

  def test_two_runs_that_diverge
    ways = {
      [/run 1/, /run 2/] => ->(world, run) { world.client("client") { world.log("run #{run}") } },
      [/1\.0+ .* ends/, /2\.0+ .* ends/] => ->(world, run) { world.client("client") { sleep run } },
      [/server.*"1\\n"/, /server.*"2\\n"/] => lambda do |world, run|
        world.client("client") { TCPSocket.open("server", 80) { |socket| socket.puts run; socket.read } }
      end,
      [/client +raises KeyError/, /world +ends/] => ->(world, run) { world.client("client") { raise KeyError if run == 1 } },
      [/world +ends/, /world +raises KeyError/] => lambda do |world, run|
        world.client("client") { nil }
        world.check { raise KeyError if run == 2 }
      end
    }
    ways.each do |(first, second), program|
      run = 0
      error = assert_raises(RuntimeError) do
        simulate(twice: true) do |world|
          world.host("server") { TCPServer.new("server", 80).accept.then { |socket| socket.gets; socket.close } }
          program.call(world, run += 1)
        end
      end
      assert_match(/\Aseed 1 does not determine everything: two runs diverge here\n.*#{first}.*\n.*#{second}/, error.message)
      assert_equal [KeyError], [error.cause.class] if error.message.include?("KeyError")
    end
  end

  # --- the end -----------------------------------------------------------------------------------------------------

  def test_a_world_waits_for_the_fibers_of_its_clients
    late = lambda do |world|
      world.client("client") { Fiber.schedule { sleep 1; Fiber.schedule { sleep 2; raise KeyError } } }
      world.client("other") { sleep 2 }
    end
    assert_raises(KeyError) { simulate(&late) }
    simulate(until: 2.5, &late)
    assert_raises(Reactor::Testing::Stuck) { simulate { |world| world.client("client") { Fiber.schedule { Queue.new.pop } } } }
  end

  def test_a_world_waits_for_a_crashed_client_that_may_be_restarted
    boots = 0
    restart = lambda do |world|
      world.client("client") { boots += 1; sleep 10; raise KeyError if boots == 2 }
      world.at(3) { world.crash("client") }
      world.at(5) { world.restart("client") }
    end
    assert_raises(KeyError) { simulate(&restart) }
    boots = 1
    simulate { |world| world.client("client") { sleep 10 }; world.at(3) { world.restart("client") }; world.check { boots = world.time } }
    assert_equal 13.0, boots
  end

  def test_ensure_clauses_write_during_a_crash
    reader, writer = IO.pipe
    simulate do |world|
      world.host("host") do
        sleep
      ensure
        %w[x y].each { |text| writer.syswrite(text); writer.write(text) }
      end
      world.client("client") { world.crash("host"); sleep 1 }
    end
    assert_equal "xxyy", reader.read_nonblock(9)
  ensure
    [reader, writer].each(&:close)
  end

  def test_clients_that_wait_in_vain_are_stuck
    [{}, { until: 100 }].each do |options|
      error = assert_raises(Reactor::Testing::Stuck) do
        simulate(**options) do |world|
          world.link(latency: 0.25)
          world.host("host") { TCPServer.new("host", 80).accept.then { sleep } }
          world.client("client") { TCPSocket.new("host", 80).then { |socket| sleep 3; socket.read } }
        end
      end
      client = "waiting for #<TCPSocket 10.0.0.2:49152 to 10.0.0.1:80> to be readable"
      assert_match(/\Aclient cannot continue: nothing happens after 3\.5 s\n  host: .*\n.*test_simulation_reports\.rb/, error.message)
      assert_match(/^  client: #{client}\n.*seed: 1\)$/m, error.message)
      refute_match(/<internal:|lib\/reactor|0x/, error.message)
    end
    error = assert_raises(Reactor::Testing::Stuck) { simulate { |world| world.client("client") { loop { sleep 3601 } } } }
    assert_match(/\Aclient has not ended within a day, the default of until:\n  client: waiting asleep\n/, error.message)
  end

  def test_a_host_sets_no_scheduler
    error = assert_raises(FiberError) { simulate { |world| world.client("client") { Fiber.set_scheduler(Object.new) } } }
    assert_match(/\Aa host runs in the scheduler of its world\n/, error.message)
  end

  # --- the timeline ------------------------------------------------------------------------------------------------

  def test_a_long_timeline_says_that_it_is_cut
    trace = nil
    error = assert_raises(KeyError) do
      simulate { |world| trace = world.trace; world.client("client") { 100.times { |i| world.log("line #{i}") }; raise KeyError, "mine" } }
    end
    assert_match(/seed: 1\)\n\n  \.\.\. 41 earlier lines: world\.trace\.timeline .*\n.* line 41$/, error.message)
    assert_match(/\A.* line 0$/, trace.timeline)
  end

  def test_texts_of_several_encodings
    texts = ["\u00e9", "\xff".b, "\xff"]
    program = ->(world) { world.client("client") { texts.each { |text| world.log(text) }; raise KeyError, "\xfe".b } }
    error = assert_raises(KeyError) { simulate(&program) }
    assert_match(/\A\ufffd\n.* \u00e9\n.* \ufffd\n.* \ufffd\n/m, error.message)
  end

  # @return [String] the timeline of clients that each send the messages to a server, which sends them back
  def timeline_of(*messages, clients: 1, **link)
    simulate do |world|
      world.link(latency: 0.01, **link)
      world.host("server") do
        listener = TCPServer.new("server", 80)
        loop { Fiber.schedule(listener.accept) { |socket| IO.copy_stream(socket, socket); socket.close } }
      end
      clients.times do
        world.client("client #{_1}") do
          TCPSocket.open("server", 80) { |socket| messages.each { |message| socket.write(message); socket.read(message.bytesize) } }
        rescue Errno::ECONNRESET
          nil
        end
      end
      yield world if block_given?
    end.timeline
  end

  def test_the_timeline_tells_connections_apart
    timeline = timeline_of("q", clients: 2)
    [["client 0", 49_152], ["client 1", 49_153]].each do |name, port|
      client = "#{name}:#{port}"
      assert_match(/#{client} -> server +connect 80$.*server -> #{client} +accept$.*#{client} -> server +1 "q"$/m, timeline)
    end
  end

  def test_the_timeline_has_what_is_lost
    lost = timeline_of("mine", drop: 0.5, clients: 3)
    assert_match(/ client \d:\d+ -> server +lost, sent again after [\d.]+ s: 4 "mine"$/, lost)
    assert_match(/ lost, sent again after [\d.]+ s: (connect|answer)$/, lost)
    never = timeline_of("mine") { |world| world.at(0.025) { world.crash("server") }; world.client("other") { sleep 1 } }
    assert_match(/ 0\.030000  client 0:\d+ -> server +never arrives: 4 "mine"$/, never)
    assert_match(/ never arrives: 4 "mine"$/, timeline_of("mine", reset: 1))
  end

  def test_the_timeline_shows_text_only
    timeline = timeline_of("line\n", "\u00e9", "\0\1\2", "\x16\x03\x01text", "text")
    all = ["5 \"line\\n\"", "2 #{"\u00e9".inspect}", "3 bytes", "7 bytes of TLS", "4 bytes of TLS"]
    assert_equal [], all.reject { |shown| timeline.include?(" #{shown}\n") }
  end

  def test_the_fewest_yields_between_two_powers_of_two
    error = assert_raises(KeyError) do
      explore(runs: 20) do |world|
        world.client("client") { 500.times { sleep 1 } }
        world.check { raise KeyError if world.yields >= 11 }
      end
    end
    assert_match(/seed: \d+, yields: 11, faults: 0\)$/, error.message)
  end
end

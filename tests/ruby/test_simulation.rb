# frozen_string_literal: true

require_relative "simulated"
require "net/http"
require "open3"

# A world made from a seed: hosts, a network, faults.
class TestSimulation < SimulationTest
  # --- the network -------------------------------------------------------------------------------------------------

  def test_net_http_by_name
    serve = lambda do |socket, _|
      while socket.gets
        nil until socket.gets == "\r\n"
        socket.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
      end
      socket.close
    end
    ask = ->(_) { Net::HTTP.start("server", 80) { |http| Array.new(3) { http.get("/").body } } }
    assert_equal [%w[hello] * 3], between(serve, ask, drop: 0.1, split: 0.3).uniq
  end

  def test_addresses_are_those_of_the_world
    told = nil
    simulate do |world|
      world.host("server") do
        listener = TCPServer.new("0.0.0.0", 0)
        told = [listener.addr, listener.local_address.inspect_sockaddr]
        assert_raises(Errno::EADDRINUSE) { TCPServer.new(listener.addr[1]) }
        world.client("client") do
          socket = TCPSocket.new("server", listener.addr[1])
          socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
          assert_equal ["AF_INET", listener.addr[1], "10.0.0.1", "10.0.0.1"], socket.peeraddr
          assert_equal "10.0.0.3", socket.local_address.ip_address
          assert_equal "10.0.0.1", IPSocket.getaddress("server")
          found = Addrinfo.getaddrinfo("server", 80, nil, :STREAM)
          assert_equal [["10.0.0.1", 80]], found.map { |address| [address.ip_address, address.ip_port] }
          socket.write("x")
          assert_equal "x", socket.read(1)
          socket.close
        end
        socket = listener.accept
        assert_equal "10.0.0.3", socket.remote_address.ip_address
        IO.copy_stream(socket, socket)
        socket.close
      end
      world.client("first") { sleep 1 }
    end
    assert_equal ["AF_INET", 49_152, "10.0.0.1", "10.0.0.1"], told.first
    assert_equal "10.0.0.1:49152", told.last
  end

  # In the way Reactor::Rack and Ruby's own Socket.tcp_server_sockets make a listener, and others connect.
  def test_plain_sockets
    simulate do |world|
      world.host("server") do
        Socket.tcp_server_sockets("0.0.0.0", 80).each do |listener|
          assert_equal 80, listener.local_address.ip_port
          loop do
            socket, address = listener.accept
            assert_equal "10.0.0.2", address.ip_address
            socket.write(socket.readpartial(10))
            socket.close
          end
        end
      end
      world.client("client") do
        sleep 1
        Socket.tcp("server", 80, connect_timeout: 1) do |socket|
          socket.write("tcp")
          assert_equal "tcp", socket.read
        end
        socket = Socket.new(:INET, :STREAM)
        socket.connect(Addrinfo.new(Socket.sockaddr_in(80, "10.0.0.1")))
        socket.write("new")
        assert_equal [[socket], [], []], IO.select([socket], nil, nil, 5)
        assert_equal "new", socket.read
        socket.close
      end
    end
  end

  def test_a_connection_to_nobody_is_refused_or_times_out
    simulate do |world|
      world.host("server") { TCPServer.new("server", 80).close }
      world.client("client") do
        assert_raises(Errno::ECONNREFUSED) { TCPSocket.new("server", 80) }
        assert_raises(Errno::ECONNREFUSED) { TCPSocket.new("server", 81) }
        assert_raises(Socket::ResolutionError) { TCPSocket.new("nobody", 80) }
        world.partition("server")
        assert_raises(IO::TimeoutError) { TCPSocket.new("server", 80, connect_timeout: 2) }
        assert_raises(Errno::ETIMEDOUT) { Socket.tcp("server", 80, connect_timeout: 1) }
        assert_raises(Timeout::Error) { Timeout.timeout(3) { TCPSocket.new("server", 80) } }
        assert_in_delta 6, world.time, 0.1
        assert_raises(Errno::ETIMEDOUT) { TCPSocket.new("server", 80) }
        assert_in_delta 6 + 127, world.time, 5
      end
    end
  end

  def test_a_connection_without_blocking
    connect = lambda do |world|
      connect = lambda do |port|
        socket = Socket.new(:INET, :STREAM)
        address = Addrinfo.tcp("server", port)
        assert_raises(IO::EINPROGRESSWaitWritable) { socket.connect_nonblock(address) }
        assert_raises(Errno::EALREADY) { socket.connect_nonblock(address) }
        socket.wait_writable(5) ? [socket, address] : socket.close
      end
      socket, address = connect.call(80)
      assert_equal 0, socket.connect_nonblock(address, exception: false)
      assert_raises(Errno::EISCONN) { socket.connect(address) }
      assert_equal ["server", 5], [socket.write("hello") && socket.readpartial(10), socket.remote_address.ip_port - 75]
      socket.close
      refused, address = connect.call(81)
      assert_raises(Errno::ECONNREFUSED) { refused.connect_nonblock(address) }
      refused.close
      world.partition("server")
      before = world.time
      assert_nil connect.call(80)
      assert_raises(Errno::ETIMEDOUT) { address.connect(timeout: 3) }
      world.time - before
    end
    answer = ->(socket, _) { socket.readpartial(10); socket.write("server"); socket.close }
    between(answer, connect).each { |took| assert_in_delta 8, took, 0.1 }
  end

  # The server crashes, or the client closes the socket, before it is connected.
  def test_a_connection_that_ends_while_it_is_made
    [->(world, _) { world.crash("server") }, ->(_, socket) { socket.close }].each do |ends|
      20.times do |seed|
        simulate(seed) do |world|
          world.link(latency: 0.01..3)
          world.host("server") { TCPServer.new("server", 80).then { |listener| loop { listener.accept } } }
          world.client("client") do
            socket = Socket.new(:INET, :STREAM)
            socket.connect_nonblock(Addrinfo.tcp("server", 80), exception: false)
            sleep 1
            ends.call(world, socket)
            sleep 10
            socket.close
          end
        end
      end
    end
  end

  def test_a_server_is_found_only_where_it_listens
    simulate do |world|
      listeners = []
      world.host("server") do
        assert_raises(Errno::EADDRNOTAVAIL) { TCPServer.new("client", 80) }
        assert_raises(Socket::ResolutionError) { TCPServer.new("nobody", 80) }
        listeners << TCPServer.new("localhost", 80) << TCPServer.new("http-alt") << TCPServer.new("server", nil)
        listeners.concat(Socket.tcp_server_sockets("127.0.0.1", 82))
        TCPSocket.new("localhost", 80).close
        sleep
      end
      world.client("client") do
        sleep 1
        assert_equal [80, 8080, 49_152, 82], listeners.map { |listener| listener.local_address.ip_port }
        assert_raises(Errno::ECONNREFUSED) { TCPSocket.new("server", 80) }
        assert_raises(Errno::ECONNREFUSED) { TCPSocket.new("server", 82) }
        assert_raises(ArgumentError) { TCPSocket.new("server", 8080, limit: 1) }
        TCPSocket.new("server", "http-alt").close
        TCPSocket.new("server", 49_152).close
      end
    end
  end

  def test_a_port_is_chosen_among_the_free_ones
    simulate do |world|
      world.client("client") do
        kept = TCPServer.new(0)
        16_383.times { world.instance_variable_get(:@network).ephemeral }
        refute_equal kept.addr[1], TCPServer.new(0).addr[1]
        assert_raises(NotImplementedError) { kept.sysaccept }
      end
    end
  end

  def test_no_connection_is_accepted_that_no_client_has
    skip "no limit of descriptors" unless Process.respond_to?(:setrlimit)

    said = child_says(<<~RUBY)
      require "reactor/testing"
      Process.setrlimit(:NOFILE, 64)
      told, failed = [], 0
      Reactor::Testing.simulate(seed: 1, until: 100, backend: #{SIMULATED.inspect}) do |world|
        world.host("server") do
          listener = TCPServer.new("server", 80)
          loop do
            Fiber.schedule(listener.accept) { |socket| told << [socket.remote_address.ip_port, socket.gets.to_i]; sleep 1; socket.close }
          rescue Errno::EMFILE
            sleep 0.5
          end
        end
        world.client("client") do
          40.times do
            Fiber.schedule do
              TCPSocket.open("server", 80) { |socket| socket.puts socket.local_address.ip_port; socket.read }
            rescue Errno::EMFILE
              failed += 1
              sleep 2
              retry
            end
          end
          sleep 60
        end
      end
      p told.size, failed.positive?, told.all? { |theirs, own| theirs == own }
    RUBY
    assert_equal "40\ntrue\ntrue\n", said
  end

  def test_options_of_tcp
    between(->(_, _) { sleep }, lambda do |_|
      socket = TCPSocket.new("server", 80)
      socket.setsockopt(:TCP, :NODELAY, 1)
      socket.setsockopt(Socket::Option.int(:INET, :TCP, :KEEPIDLE, 5))
      assert_equal [1, 1], [socket.getsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY), socket.getsockopt(:TCP, :KEEPIDLE)].map(&:int)
      socket.close
      assert_raises(IOError) { socket.remote_address }
      assert_raises(IOError) { socket.peeraddr }
    end, seeds: [1])
  end

  def test_a_full_queue_lets_a_client_try_again
    accepted = nil
    simulate do |world|
      world.host("server") do
        listener = TCPServer.new("server", 80)
        listener.listen(1)
        sleep 10
        accepted = Array.new(6) { listener.accept.tap { sleep 5 } }
        accepted.each(&:close)
      end
      6.times { |i| world.client("client #{i}") { TCPSocket.open("server", 80, &:read) } }
    end
    assert_equal 6, accepted.size
  end

  def test_every_byte_arrives_in_order
    bytes = Random.new(1).bytes(1_000_000)
    echo = lambda do |socket, _|
      sleep 1
      IO.copy_stream(socket, socket)
      socket.close
    end
    send = lambda do |_|
      socket = TCPSocket.new("server", 80)
      Fiber.schedule { socket.write(bytes); socket.close_write }
      socket.read.tap { socket.close } == bytes
    end
    assert_equal [true], between(echo, send, seeds: SEEDS.first(3), drop: 0.05, split: 0.01, latency: 0.01..0.1).uniq
  end

  # Thousands of small messages wait until the reader's socket has space. Each is scheduled once.
  def test_a_slow_reader_costs_no_more_than_its_messages
    scheduled = 0
    trace = simulate do |world|
      counting = Module.new { define_method(:after) { |*given, &block| (scheduled += 1) && super(*given, &block) } }
      world.instance_variable_get(:@network).singleton_class.prepend(counting)
      world.link(split: 1, latency: 0.001)
      world.host("server") do
        listener = TCPServer.new("server", 80)
        listener.accept.then { |socket| 300.times { socket.write("z" * 100) }; socket.close }
      end
      world.client("client") do
        sleep 1
        TCPSocket.open("server", 80) { |socket| sleep 0.5 while socket.read(1000) }
      end
    end
    assert_operator scheduled, :<, 2 * trace.size
  end

  def test_a_closed_peer_resets
    close = ->(socket, _) { sleep 1; socket.close }
    write = lambda do |_|
      TCPSocket.open("server", 80) { |socket| sleep 2; [socket.write("x"), sleep(1), raised { loop { socket.write("x"); sleep 1 } }] }
    end
    assert_equal [[1, 1, Errno::EPIPE]], between(close, write).uniq
    unread = lambda do |_|
      TCPSocket.open("server", 80) { |socket| [socket.write("x"), raised { socket.read }] }
    end
    assert_equal [[1, Errno::ECONNRESET]], between(close, unread).uniq
  end

  def test_resets_by_the_network
    ask = ->(_) { raised { TCPSocket.open("server", 80) { |socket| 100.times { socket.write("x"); socket.readpartial(1) } } } }
    echo = ->(socket, _) { raised { IO.copy_stream(socket, socket) }; socket.close }
    assert_equal [Errno::ECONNRESET], between(echo, ask, reset: 0.1).uniq - [Errno::EPIPE]
  end

  def test_a_reset_reaches_a_half_closed_connection
    dies = ->(socket, world) { socket.write(socket.read); sleep 1; world.crash("server") }
    ask = lambda do |_|
      TCPSocket.open("server", 80) { |socket| socket.write("x"); socket.close_write; [socket.read(1), raised { socket.read }] }
    end
    assert_equal [["x", Errno::ECONNRESET]], between(dies, ask).uniq
  end

  def test_a_partition_holds_what_was_sent
    echo = ->(socket, _) { IO.copy_stream(socket, socket); socket.close }
    ask = lambda do |world|
      world.at(60) { world.heal("client", "server") }
      TCPSocket.open("server", 80) do |socket|
        world.partition("client", "server")
        socket.write("x")
        assert_nil socket.wait_readable(30)
        socket.readpartial(1)
        world.time
      end
    end
    between(echo, ask).each { |time| assert_in_delta 60, time, 0.1 }
  end

  # --- crashes -----------------------------------------------------------------------------------------------------

  def test_a_crash_ends_the_fibers_and_resets
    log = []
    simulate do |world|
      world.host("server") do
        listener = TCPServer.new("server", 80)
        loop do
          socket = begin
            listener.accept
          rescue IOError
            log << :closed
          end
          Fiber.schedule do
            socket.write("hello")
            begin
              socket.read
              log << :read
            rescue StandardError => error
              log << error.class
            ensure
              log << raised { socket.write("bye") } << raised { sleep 1 }
            end
          end
        end
      end
      world.client("client") do
        socket = TCPSocket.new("server", 80)
        assert_equal "hello", socket.readpartial(5)
        world.crash("server")
        assert_equal Errno::ECONNRESET, raised { socket.read }
        socket.close
        assert_equal Errno::ECONNREFUSED, raised { TCPSocket.new("server", 80) }
        world.restart("server")
        sleep 1
        assert_equal "hello", TCPSocket.open("server", 80) { |other| other.readpartial(5) }
        sleep 10
      end
    end
    assert_equal [Errno::ENETDOWN, Errno::ENETDOWN, :read, nil, nil], log
  end

  def test_watchers_end_with_their_host
    log = []
    simulate do |world|
      world.host("server") do
        server = Reactor::Server.new(TCPServer.new("server", 80)) { |socket| socket.write(socket.readpartial(10)); sleep 5; log << :late }
        server.start
        sleep
      end
      world.client("client") do
        sleep 1
        TCPSocket.open("server", 80) do |socket|
          socket.write("x")
          assert_equal "x", socket.read(1)
          world.crash("server")
          assert_equal Errno::ECONNRESET, raised { socket.read }
        end
        sleep 60
      end
    end
    assert_equal [], log
  end

  def test_a_crashed_client_is_not_waited_for
    simulate do |world|
      world.client("client") { sleep 1000 }
      world.at(5) { world.crash("client") }
    end.then { |trace| assert_match(/ 5\.000000  client +crash/, trace.timeline) }
  end

  def test_a_host_may_crash_itself
    ways = { crash: ->(world) { world.crash("host") }, restart: ->(world) { world.restart("host") } }
    logs = ways.map do |how, way|
      log = []
      simulate do |world|
        boots = 0
        world.host("host") do
          boot = boots += 1
          Fiber.schedule { sleep; log << :slept }
          sleep 1
          way.call(world) if boot == 1
          log << [how, boot]
        rescue StandardError
          retry
        ensure
          log << [:ends, boot]
        end
        world.client("client") { sleep 5 }
      end
      log
    end
    assert_equal [[[:ends, 1]], [[:ends, 1], [:restart, 2], [:ends, 2]]], logs
  end

  def test_a_restart_before_the_start_boots_once
    boots = 0
    simulate do |world|
      world.host("host") { boots += 1 }
      world.restart("host")
      world.client("client") { sleep 1 }
    end
    assert_equal 1, boots
  end

  # --- the end -----------------------------------------------------------------------------------------------------

  def test_a_world_ends_when_its_clients_have_or_at_its_time
    times = []
    simulate do |world|
      world.host("host") { loop { sleep 1 } }
      world.client("client") { sleep 10 }
      world.check { times << world.time }
    end
    simulate(until: 5.5) do |world|
      world.host("host") { loop { sleep 1 } }
      world.check { times << world.time }
    end
    assert_equal [10.0, 5.5], times
  end

  def test_an_error_names_the_seed
    fails = -> { raise KeyError, "mine" }
    at = {
      host: ->(world) { world.host("other", &fails) }, later: ->(world) { world.host("other") { Fiber.schedule { sleep 1; fails.call } } },
      check: ->(world) { world.check(&fails) }, moment: ->(world) { world.at(1, &fails) }, block: ->(_) { fails.call }
    }
    at.each do |place, step|
      error = assert_raises(KeyError, place) { simulate(7) { |world| world.client("client") { sleep 3 }; step.(world) } }
      assert_match(/\Amine\n\(simulated with seed: 7\)\n\n.*(host|other|world) +raises KeyError\z/m, error.message)
      assert_match(/test_simulation\.rb/, error.backtrace.first)
    end
    assert_raises(Minitest::Assertion) { simulate { |world| world.client("client") { Fiber.schedule { sleep 1; flunk }; sleep 2 } } }
    refute Fiber.scheduler
  end

  # --- one seed, one course of events ------------------------------------------------------------------------------

  PROGRAM = <<~'RUBY'
    lambda do |world|
      world.link(drop: 0.1, split: 0.1)
      world.host("server") do
        listener = TCPServer.new("server", 80)
        loop { Fiber.schedule(listener.accept) { |socket| IO.copy_stream(socket, socket); socket.close } }
      end
      3.times do |i|
        world.client("client #{i}") do
          3.times do
            TCPSocket.open("server", 80) { |socket| socket.write("x" * rand(1..100)); socket.close_write; socket.read }
            sleep Random.rand
          end
          clocks = [Time.now.to_r, Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)]
          world.log([rand, Random.new.rand, SecureRandom.hex(4), *clocks, [1, 2, 3].shuffle, srand && Random.srand && rand].inspect)
        end
      end
      world.at(1) { world.partition("client 1") }
      world.at(2) { world.crash("server") }
      world.at(3) { world.heal }
      world.at(4) { world.restart("server") }
    end
  RUBY

  def test_a_seed_gives_the_same_course_of_events_in_each_process
    program = eval(PROGRAM)
    survive = lambda do |seed|
      Reactor::Testing.simulate(seed: seed, backend: SIMULATED, twice: true, &program)
    rescue SystemCallError, EOFError => error
      error.class
    end
    own = SEEDS.map { |seed| run_plain { survive.(seed) }.then { |trace| trace.respond_to?(:digest) ? trace.digest : trace.to_s } }
    said = child_says(<<~RUBY)
      require "reactor/testing"
      program = #{PROGRAM}
      (#{SEEDS}).each do |seed|
        puts Reactor::Testing.simulate(seed: seed, backend: #{SIMULATED.inspect}, &program).digest
      rescue SystemCallError, EOFError => error
        puts error.class
      end
    RUBY
    assert_equal own.map(&:to_s), said.lines(chomp: true)
    assert_operator own.uniq.size, :>, 1
  end

  def test_threads_and_children_are_refused_unless_allowed
    ways = [
      -> { Thread.new { nil }.join }, -> { system("true") }, -> { `true` }, -> { IO.popen("true").close }, -> { spawn("true") },
      -> { fork { nil } }, -> { UDPSocket.new }, -> { Socket.new(:INET, :DGRAM) }, -> { Ractor.new { nil } },
      -> { eval("`true`", binding, "/programs/minitest/lib/ours.rb") }
    ]
    refused = []
    simulate { |world| world.client("client") { refused.concat(ways.map { |way| raised_even { way.call } }) } }
    assert_equal [NotImplementedError] * 10, refused
    simulate(allow: %i[threads children]) { |world| world.client("client") { ways.first(5).each(&:call) } }
  end

  def raised_even
    yield
    nil
  rescue NotImplementedError => error
    error.class
  end

  def test_outside_of_a_host_everything_is_real
    simulate { |world| world.client("client") { sleep 1 } }
    listener = track(TCPServer.new("127.0.0.1", 0))
    assert_equal "127.0.0.1", track(TCPSocket.new("127.0.0.1", listener.addr[1])).peeraddr[3]
    assert_equal "127.0.0.1", track(listener.accept).local_address.ip_address
    refute_equal Random.new.rand, Random.new.rand
    assert_equal [], %i[spawn fork system `].select { |name| Object.new.respond_to?(name) }
  end

  # --- exploring ---------------------------------------------------------------------------------------------------

  # Two fibers read the balance at the same time, tell a server, and write it.
  def lost_update(world)
    balance = 0
    world.link(drop: 0.2, latency: 0.1..2)
    world.host("log") do
      listener = TCPServer.new("log", 80)
      loop { Fiber.schedule(listener.accept) { |socket| socket.read; socket.close } }
    end
    world.client("client") do
      socket = TCPSocket.new("log", 80)
      2.times do
        Fiber.schedule do
          sleep 10
          before = balance
          socket.puts "adds one"
          balance = before + 1
        end
      end
      sleep 60
      socket.close
    end
    world.check { assert_equal 2, balance }
  end

  def test_the_first_failure_is_shrunk
    error = assert_raises(Minitest::Assertion) { explore(runs: 200) { |world| lost_update(world) } }
    assert_match(/Expected: 2\n  Actual: 1\n\(simulated with seed: \d+, yields: \d+, faults: 0\)/, error.message)
    assert_match(/ client +yields at test_simulation\.rb:\d+$/, error.message)
    again = error.message.match(/seed: (?<seed>\d+), yields: (?<yields>\d+)/)
    assert_raises(Minitest::Assertion) do
      simulate(again[:seed].to_i, yields: again[:yields].to_i, faults: 0) { |world| lost_update(world) }
    end.then { |repeated| assert_equal error.message, repeated.message }
    assert_nil explore(runs: 20, yields: 0) { |world| lost_update(world) }
    assert_raises(ArgumentError) { explore(runs: 0) { nil } }
  end

  def test_require_reactor_loads_nothing_of_it
    assert_equal "[]\n", child_says('require "reactor"; p $LOADED_FEATURES.grep(%r{reactor/testing|securerandom|scheduler/shuffle})')
  end

  def test_arguments
    assert_raises(ArgumentError) { Reactor::Testing.simulate(seed: 1) }
    assert_raises(ArgumentError) { simulate { |world| world.host("host") { sleep } } }
    assert_raises(ArgumentError) { simulate { |world| world.host("host") } }
    assert_raises(ArgumentError) { simulate { |world| 2.times { world.client("client") { nil } } } }
    assert_raises(ArgumentError) { simulate { |world| world.link("a", "b", "c") } }
    [{ drop: 2 }, { latency: -1 }, { latency: -1..2 }, { latency: 2..1 }, { latency: 1.. }, { latency: "1" }, { split: -1 }].each do |wrong|
      assert_raises(ArgumentError) { simulate { |world| world.link(**wrong) } }
    end
    assert_raises(TypeError) { simulate(until: "1") { nil } }
    assert_raises(TypeError) { simulate(at: "now") { nil } }
    assert_raises(ArgumentError) { simulate(allow: %i[files]) { nil } }
    %i[partition heal crash restart].each do |fault|
      assert_raises(ArgumentError) { simulate { |world| world.public_send(fault, "nobody") } }
    end
    assert_raises(ArgumentError) { Reactor::Testing.simulate(seed: 1, backend: :uring) { nil } } if Reactor.backends[:uring] == true
    run_scheduler { assert_raises(RuntimeError) { Reactor::Testing.simulate(seed: 1) { nil } } }
  end

  # The guide lists everything that is patched.
  def test_the_guide_names_every_patch
    rows = Reactor::Testing.const_get(:Simulation).const_get(:ROWS)
    text = File.read(File.join(ROOT, "docs/patches.md"))
    missing = rows.flat_map do |owner, with|
      prefix = owner.singleton_class? ? "#{owner.attached_object}." : "#{owner}#"
      names = with.instance_methods(false) + with.private_instance_methods(false)
      names.map { |name| name == :initialize ? "#{owner}.new" : "#{prefix}#{name}" }
    end
    assert_equal [], missing.reject { |name| text.include?(name) }
  end
end

# frozen_string_literal: true

require_relative "helper"
ReactorTest.optional "openssl"
require "tmpdir"

# Reactor::Server: a connection has a fiber while it is busy, and none while it is idle.
class TestServer < ReactorTest
  # Answers each line in capitals. "bye" is the last one.
  UPCASE = lambda do |socket|
    line = socket.gets
    socket.write(line.upcase) if line
    line && line != "bye\n"
  end

  # Runs a server in the current scheduler, gives the client's fiber a way to connect, and stops the server afterwards.
  def serving(scheduler, answer = UPCASE, **options)
    listening = listener
    port = listening.addr[1]
    server = Reactor::Server.new(listening, scheduler: scheduler, **options, &answer).start
    Fiber.schedule do
      yield server, -> { track(TCPSocket.new("127.0.0.1", port)) }
    ensure
      server.stop
    end
    scheduler.run
    server
  end

  def asked(socket, line)
    socket.puts(line)
    socket.gets
  end

  # Waits until all connections are idle: the calling fiber is the only one.
  def until_resting(scheduler, connections)
    assert eventually { scheduler.live == 1 && scheduler.stats[:watchers] == connections + 1 }, scheduler.dump
  end

  def test_a_connection_at_rest_has_no_fiber
    run_scheduler do |scheduler|
      serving(scheduler) do |server, connect|
        clients = Array.new(3) { connect.call }
        until_resting(scheduler, 3)
        assert_equal [["ONE\n"] * 3, 3], [clients.map { |client| asked(client, "one") }, server.connections]
        until_resting(scheduler, 3)
        assert_equal ["TWO\n"] * 3, clients.map { |client| asked(client, "two") }
        assert_equal ["BYE\n", nil], [asked(clients.first, "bye"), clients.first.gets]
        clients[1].close
        until_resting(scheduler, 1)
        assert_equal 1, server.connections
      end
    end
  end

  def test_the_longest_idle_connection_makes_room
    run_scheduler do |scheduler|
      go = Queue.new
      answer = lambda do |socket|
        line = socket.gets
        socket.write(line.upcase) if line
        line == "wait\n" ? go.pop : line
      end
      serving(scheduler, answer, linger: 0, limit: 3, evict: true) do |server, connect|
        clients = Array.new(3) { connect.call.tap { |client| asked(client, "one") } }
        asked(clients[0], "two") # so the second is idle for longest
        clients << connect.call
        assert_nil clients[1].gets
        assert_equal "THREE\n", asked(clients[3], "three")
        assert_equal 3, server.connections
        [0, 2, 3].each { |at| assert_equal "WAIT\n", asked(clients[at], "wait") }
        clients << connect.call
        clients[4].puts("four")
        assert eventually { go.num_waiting == 3 }
        assert_equal [3, nil], [server.connections, clients[4].wait_readable(0)], "none is idle"
        go << true
        assert_equal "FOUR\n", clients[4].gets
        assert_nil clients[0].gets
        2.times { go << true }
      end
    end
  end

  def fibers_of_three_requests(scheduler, linger)
    fibers = []
    answer = ->(socket) { fibers << Fiber.current; UPCASE.call(socket) }
    serving(scheduler, answer, linger: linger) do |_, connect|
      client = connect.call
      3.times do
        assert_equal "X\n", asked(client, "x")
        until_resting(scheduler, 1) if linger.zero?
      end
      asked(client, "bye") unless linger.zero? # or the end would wait for the lingering
    end
    fibers.uniq.size
  end

  def test_a_busy_connection_keeps_its_fiber_for_a_moment
    run_scheduler do |scheduler|
      assert_equal [1, 3], [3600, 0].map { |linger| fibers_of_three_requests(scheduler, linger) }
    end
  end

  # @return [Array<Hash>] the storage seen by each request; the second and the third use the same connection
  def storages_of_four_requests(scheduler, linger)
    seen = []
    answer = lambda do |socket|
      seen << Fiber.current.storage.to_h
      Fiber[:of_server] = Fiber[:of_request] = seen.size
      UPCASE.call(socket)
    end
    fiber = Fiber.new(blocking: false, storage: { of_server: :own }) do
      handshake = ->(socket) { Fiber[:of_handshake] = true; socket }
      serving(scheduler, answer, handshake: handshake, limit: 1, linger: linger) do |_, connect|
        [%w[bye], %w[x bye], %w[bye]].each do |lines|
          client = connect.call
          lines.each do |line|
            asked(client, line)
            until_resting(scheduler, 0) if linger.zero? && line == "x"
          end
          assert_nil client.gets
        end
      end
    end
    fiber.resume
    seen
  end

  # The fiber of a request lets the server accept the next connection, because the limit is 1; it lingers for its own next
  # request; and it starts the watcher for that.
  def test_no_request_sees_the_storage_of_another_one
    [3600, 0].each do |linger|
      run_scheduler { |scheduler| assert_equal [{ of_server: :own }] * 4, storages_of_four_requests(scheduler, linger), "linger: #{linger}" }
    end
  end

  def test_more_connections_than_the_limit_wait_to_be_accepted
    run_scheduler do |scheduler|
      serving(scheduler, limit: 2, linger: 0) do |server, connect|
        clients = Array.new(3) { connect.call }
        assert_equal ["A\n"] * 2, clients.first(2).map { |client| asked(client, "a") }
        clients.last.puts("late")
        assert_nil clients.last.wait_readable(0.02)
        assert_equal [2, 2], [server.connections, scheduler.stats[:watchers]], "the listener is not watched"
        clients.first.close
        assert_equal "LATE\n", clients.last.gets
      end
    end
  end

  # On UNIX sockets, which deliver at once, so that virtual time jumps only when all connections are idle.
  def test_a_connection_that_is_idle_for_too_long_is_closed
    require "reactor/testing"
    Dir.mktmpdir do |folder|
      path = File.join(folder, "socket")
      Reactor::Testing.virtual_time(backend: BACKEND) do |clock|
        server = Reactor::Server.new(track(UNIXServer.new(path)), idle_timeout: 60r, linger: 0, &UPCASE).start
        Fiber.schedule do
          silent, polite = Array.new(2) { track(UNIXSocket.new(path)) }
          sleep 30
          assert_equal "A\n", asked(polite, "a")
          assert_equal [nil, 60], [silent.gets, clock.elapsed.round]
          assert_equal [nil, 90], [polite.gets, clock.elapsed.round]
          assert_equal 0, server.connections
          server.stop
        end
      end
    end
  end

  def test_a_graceful_end_closes_what_rests_and_waits_for_what_runs
    log = []
    run_scheduler do |scheduler|
      come, go = Thread::Queue.new, Thread::Queue.new
      answer = ->(socket) { socket.gets; come << true; go.pop; socket.write("done\n") }
      server = serving(scheduler, answer) do |running, connect|
        resting, busy = connect.call, connect.call
        until_resting(scheduler, 2)
        busy.puts("x")
        come.pop
        stopped = Thread::Queue.new
        Fiber.schedule { stopped << running.stop }
        log << resting.gets << outcome { connect.call }.first << busy.wait_readable(0)
        go << true
        log << busy.gets << busy.gets << stopped.pop
      end
      assert_equal [0, 0], [server.connections, scheduler.stats[:watchers]]
      assert_raises(RuntimeError) { server.start }
    end
    assert_equal [nil, :raised, nil, "done\n", nil, 0], log
  end

  # Uses a listener whose first accepts raise these errors. @return [Integer] number of accepts
  def accepts_after(errors)
    accepts = 0
    Dir.mktmpdir do |folder|
      listening = track(UNIXServer.new(File.join(folder, "socket")))
      listening.define_singleton_method(:accept_nonblock) do |**options|
        accepts += 1
        errors.empty? ? super(**options) : raise(errors.shift)
      end
      Reactor::Testing.virtual_time(backend: BACKEND) do
        server = Reactor::Server.new(listening, &UPCASE).start
        Fiber.schedule do
          assert_equal "A\n", asked(track(UNIXSocket.new(listening.path)), "a")
          server.stop
        end
      end
    end
    accepts
  end

  def test_no_error_of_accept_makes_a_server_deaf
    require "reactor/testing"
    passing = %i[EMFILE ENFILE ENOBUFS ENOMEM EPERM ENETDOWN ENOPROTOOPT EHOSTDOWN ENONET EHOSTUNREACH EOPNOTSUPP ENETUNREACH EPROTO ECONNABORTED EINTR]
    errors = passing.map { |name| Errno.const_get(name).new }
    most = errors.size + 4 # the connection, then that there is no other; at the end the same
    assert_operator accepts_after(errors), :<=, most, "it spins"
    [Errno::EIO, ArgumentError].each do |kind|
      error = quiet_errors { assert_raises(kind) { accepts_after([kind.new("odd"), kind.new("odd")]) } }
      assert_match(/odd/, error.message)
    end
  end

  def quiet_errors
    result = nil
    capture_io { result = yield }
    result
  end

  # The server has had no chance to notice.
  def test_a_graceful_end_answers_what_has_come
    run_scheduler do |scheduler|
      listening = listener
      server = Reactor::Server.new(listening, linger: 0, limit: 5, &UPCASE).start
      connect = -> { track(Fiber.blocking { TCPSocket.new("127.0.0.1", listening.addr[1]) }) }
      Fiber.schedule do
        resting = Array.new(5) { connect.call }
        assert eventually { scheduler.live == 1 && server.connections == 5 }, scheduler.dump
        clients = resting.first(4) + Array.new(5) { connect.call }
        Fiber.blocking { clients.each { |client| client.write("a\nb\n") } }
        silent = [resting.last, connect.call]
        assert_equal 0, server.stop
        assert_equal [["A\n", "B\n", nil]] * 9, clients.map { |client| Array.new(3) { client.gets } }
        assert_equal [nil, nil], silent.map(&:gets)
        assert_equal [0, 0], [server.connections, scheduler.stats[:watchers]]
      end
      scheduler.run
    end
  end

  def test_a_second_end_hastens_the_first_and_handlers_run_their_ensure_clauses
    log, come = [], Thread::Queue.new
    answer = lambda do |socket|
      come << socket.gets
      Thread::Queue.new.pop
    rescue Exception => error # rubocop:disable Lint/RescueException -- as a transaction does
      log << [error.class, error.reason]
      raise
    ensure
      log << :ensured
    end
    run_scheduler do |scheduler|
      serving(scheduler, answer) do |server, connect|
        client = connect.call
        client.puts("x")
        come.pop
        first = Thread::Queue.new
        Fiber.schedule { first << server.stop }
        assert eventually { server.inspect.include?("stopped") }
        assert_equal [1, 1, 1, nil], [server.stop(0), first.pop, server.stop, (client.gets rescue nil)]
        assert eventually { scheduler.live == 1 }, scheduler.dump
        assert_equal [[[Reactor::Cancelled, :stopped], :ensured], 0], [log, server.connections]
      end
    end
  end

  def test_an_end_that_is_refused_changes_nothing
    run_scheduler do |scheduler|
      serving(scheduler) do |server, connect|
        refused = [-> { Thread.new { server.stop(0) }.tap { |thread| thread.report_on_exception = false }.value },
                   -> { in_trap_handler { server.stop(0) } }, -> { server.stop("1") }, -> { server.stop(-1) }]
        errors = refused.map { |call| outcome(&call).last }
        assert_equal [ThreadError, ThreadError, TypeError, ArgumentError], errors
        assert_equal "ONE\n", asked(connect.call, "one")
      end
    end
  end

  def in_trap_handler
    answer = Thread::Queue.new
    before = trap(SIGNAL) { answer << (yield rescue $!) }
    Process.kill(SIGNAL, $$)
    result = answer.pop
    raise result if result.is_a?(Exception)
  ensure
    trap(SIGNAL, before)
  end

  def test_connections_that_linger_without_a_request_are_not_counted_as_cut_off
    run_scheduler do |scheduler|
      serving(scheduler, linger: 3600) do |server, connect|
        clients = Array.new(3) { connect.call }
        assert_equal ["A\n"] * 3, clients.map { |client| asked(client, "a") }
        assert_equal [0, nil], [server.stop(0), clients.first.gets]
      end
    end
  end

  def test_a_second_end_hastens_a_first_that_finds_no_descriptor_and_until_then_nothing_is_cut
    out = child_says(<<~'RUBY')
      require "socket"
      Process.setrlimit(:NOFILE, 64, Process.getrlimit(:NOFILE).last)
      Fiber.set_scheduler(scheduler = Reactor::Scheduler.new)
      [60, 0].each do |later|
        listener = TCPServer.new("127.0.0.1", 0)
        server = Reactor::Server.new(listener, linger: 0) { |socket| line = socket.gets and socket.write(line) }.start
        Fiber.schedule do
          answered, client = Array.new(2) { Socket.new(:INET, :STREAM) }
          answered.connect(listener.local_address)
          answered.write("re")
          sleep 0 until scheduler.live == 2
          files = []
          begin
            loop { files << File.open(File::NULL) }
          rescue Errno::EMFILE
            client.connect(listener.local_address)
          end
          client.write("request\n")
          ended = Thread::Queue.new
          2.times { |i| Fiber.schedule { ended << server.stop([nil, later][i]) } }
          answered.write("quest\n") if later == 60
          files.each(&:close) if later == 60 && answered.read # its descriptor is free, too: the first end accepts the other
          p [ended.pop, ended.pop, (client.read rescue "cut")]
          files.each(&:close)
        end
        scheduler.run
      end
    RUBY
    assert_equal "[0, 0, \"request\\n\"]\n[1, 1, \"cut\"]\n", out
  end

  def test_what_has_come_but_is_not_begun_at_the_deadline_is_counted
    run_scheduler do |scheduler|
      serving(scheduler, linger: 0) do |server, connect|
        client = connect.call
        until_resting(scheduler, 1)
        Fiber.blocking { client.write("a\n") }
        assert_equal [1, 0], [server.stop(0), server.connections]
      end
    end
  end

  def test_an_error_closes_the_connection_and_is_reported_unless_the_client_is_gone
    errors = [Errno::ECONNRESET.new, EOFError.new("vanished"), IO::TimeoutError.new("vanished"), OpenSSL::SSL::SSLError.new("vanished"), Errno::ENOENT.new("mine")]
    _, err = capture_io do
      error = assert_raises(Errno::ENOENT) do
        run_scheduler do |scheduler|
          Thread.current.report_on_exception = true
          serving(scheduler, ->(socket) { raise errors[Integer(socket.gets)] }) do |server, connect|
            errors.each_index { |index| assert_nil asked(connect.call, index) }
            assert_equal 0, server.connections
          end
        end
      end
      assert_match(/mine\z/, error.message)
    end
    assert_match(/mine \(Errno::ENOENT\)/, err)
    refute_includes err, "vanished"
  end

  # None of their fibers could.
  def test_connections_at_rest_are_closed_if_the_scheduler_cancels_its_fibers
    accepted = []
    listening = listener
    listening.define_singleton_method(:accept_nonblock) { |**options| super(**options).tap { |socket,| accepted << socket if socket.is_a?(IO) } }
    run_scheduler do |scheduler|
      assert_raises(SystemExit) do
        Reactor::Server.new(listening, &UPCASE).start
        Fiber.schedule do
          track(TCPSocket.new("127.0.0.1", listening.addr[1]))
          until_resting(scheduler, 1)
          exit
        end
        scheduler.run
      end
    end
    assert_equal [true, [true]], [listening.closed?, accepted.map(&:closed?)]
  end

  def test_tls_connections_shake_hands_in_their_fiber_and_rest
    context = tls_context
    handshake = ->(socket) { OpenSSL::SSL::SSLSocket.new(socket, context).tap { |tls| tls.sync_close = true; tls.accept } }
    run_scheduler do |scheduler|
      serving(scheduler, handshake: handshake, linger: 0) do |server, connect|
        plain = connect.call
        until_resting(scheduler, 1)
        client = OpenSSL::SSL::SSLSocket.new(connect.call).tap { |tls| tls.sync_close = true; tls.connect }
        2.times do |i|
          client.write("a#{i}\nb\n")
          assert_equal %W[A#{i}\n B\n], Array.new(2) { client.gets }
          until_resting(scheduler, 2)
        end
        client.close
        plain.write("no TLS\n\n")
        assert_equal true, outcome { plain.read }.then { |kind, _| %i[value raised].include?(kind) }
        until_resting(scheduler, 0)
        assert_equal 0, server.connections
      end
    end
  end

  def test_a_lingering_fiber_answers_what_openssl_has_read_ahead
    context = tls_context
    handshake = ->(socket) { OpenSSL::SSL::SSLSocket.new(socket, context).tap(&:accept) }
    run_scheduler do |scheduler|
      serving(scheduler, handshake: handshake, linger: 3600) do |_, connect|
        client = OpenSSL::SSL::SSLSocket.new(connect.call).tap(&:connect)
        client.write("a\nb\nbye\n")
        assert_equal %W[A\n B\n BYE\n], Array.new(3) { client.gets }
      end
    end
  end

  # The event of the request came while nothing was waiting for it.
  def test_after_a_request_that_came_during_the_answer_the_fiber_does_not_park
    told, came, parks = Queue.new, Queue.new, []
    answer = lambda do |socket|
      line = socket.readpartial(2)
      told << line
      came.pop if line == "a\n"
      socket.write(line)
      line != "c\n"
    end
    run_scheduler do |scheduler|
      scheduler.define_singleton_method(:linger) do |io, seconds|
        before = stats[:parks]
        super(io, seconds).tap { parks << stats[:parks] - before }
      end
      serving(scheduler, answer, linger: 3600) do |_, connect|
        client = connect.call
        client.write("a\n")
        told.pop
        client.write("b\n")
        assert eventually { scheduler.stats[:spurious].positive? }
        came << true
        assert_equal %W[a\n b\n], Array.new(2) { client.readpartial(2) }
        client.write("c\n")
        assert_equal "c\n", client.readpartial(2)
        assert_equal [0, true], [parks[0], parks[1].positive?]
      end
    end
  end

  def test_a_server_that_speaks_first_greets_before_bytes_come
    greeted = lambda do |socket|
      socket.write("hello\n") unless (line = socket.wait_readable(0) && socket.gets)
      socket.write("bye\n") if line
      !line
    end
    run_scheduler do |scheduler|
      serving(scheduler, greeted, speaks: :first) do |_, connect|
        client = connect.call
        assert_equal "hello\n", client.gets
        client.write("quit\n")
        assert_equal ["bye\n", nil], Array.new(2) { client.gets }
      end
    end
  end

  def test_on_open_and_on_close_are_called_and_their_errors_are_only_reported
    told = []
    options = { on_open: ->(socket) { told << [:open, socket.closed?]; raise "in on_open" }, on_close: ->(socket) { told << [:close, socket.closed?]; raise "in on_close" } }
    _, words = capture_io do
      run_scheduler do |scheduler|
        Thread.current.report_on_exception = true
        serving(scheduler, **options) do |server, connect|
          client = connect.call
          client.write("a\n")
          assert_equal "A\n", client.gets
          client.close
          assert eventually { server.connections.zero? }
        end
      end
    end
    assert_equal [[:open, false], [:close, true]], told
    assert_equal 1, words.scan("in on_open").size
  end

  # A client that has to leave: another fiber, or another thread, closes its idle connection.
  def test_a_connection_that_the_program_closes_at_rest_gives_its_place_back
    accepted = []
    closed = Queue.new
    options = { linger: 0, limit: 2, on_open: ->(socket) { accepted << socket }, on_close: ->(socket) { closed << socket } }
    run_scheduler do |scheduler|
      serving(scheduler, **options) do |server, connect|
        [:close.to_proc, ->(socket) { Thread.new { socket.close }.join }].each do |close|
          2.times { assert_equal "A\n", asked(connect.call, "a") }
          until_resting(scheduler, 2 - 1) # the listener has no watcher while the limit is reached
          accepted.each(&close)
          assert_equal accepted, Array.new(2) { closed.pop }
          assert_equal 0, server.connections
          accepted.clear
        end
        assert_equal "A\n", asked(connect.call, "a")
      end
    end
  end

  def test_a_callback_may_close_the_connection_and_may_wait
    go = Queue.new
    is_first = true
    on_open = lambda do |socket|
      next socket.close unless is_first

      is_first = false
      go.pop
    end
    run_scheduler do |scheduler|
      serving(scheduler, on_open: on_open) do |server, connect|
        slow = connect.call
        slow.puts("a")
        assert eventually { go.num_waiting == 1 }
        assert_nil connect.call.gets, "it is accepted meanwhile, and closed"
        go << true
        assert_equal "A\n", slow.gets
        assert_equal 1, server.connections
      end
    end
  end

  # Ruby has read them ahead, and the kernel has no more.
  def test_requests_of_a_client_that_has_gone_are_answered
    [{}, { linger: 0 }].each do |options|
      lines = Queue.new
      run_scheduler do |scheduler|
        serving(scheduler, ->(socket) { socket.gets&.then { |line| lines << line } }, **options) do |server, connect|
          client = connect.call
          client.write("a\nb\nc\n")
          client.close
          assert_equal %W[a\n b\n c\n], Array.new(3) { lines.pop }
          assert eventually { server.connections.zero? }
        end
      end
    end
  end

  def test_a_client_that_has_gone_is_not_asked_for_further_requests
    [{}, { linger: 0 }].each do |options|
      calls = 0
      run_scheduler do |scheduler|
        serving(scheduler, ->(socket) { calls += 1; socket.gets; true }, **options) do |server, connect|
          client = connect.call
          client.puts("a")
          assert eventually { calls == 1 }
          client.close
          assert eventually { server.connections.zero? }
        end
      end
      assert_operator calls, :<, 1_000
    end
  end

  def test_a_handshake_that_takes_too_long_ends_its_connection
    run_scheduler do |scheduler|
      serving(scheduler, handshake: ->(socket) { socket.gets && socket }, handshake_timeout: 0.02) do |server, connect|
        client = connect.call
        client.write("half a li")
        assert_nil client.gets
        assert eventually { server.connections.zero? }
      end
    end
  end

  # After a burst, most connections wait without a fiber, although they have not been idle for long.
  def test_few_fibers_linger
    skip_under_stress
    given = linger_at_most(most = 20)
    run_plain do
      Reactor.run do
        listener = TCPServer.new("127.0.0.1", 0)
        server = Reactor::Server.new(listener, linger: 3600) { |socket| (line = socket.gets) && socket.write(line) }.start
        clients = Array.new(most + 20) { TCPSocket.new("127.0.0.1", listener.local_address.ip_port) }
        2.times { clients.each { |client| client.write("hello\n"); assert_equal "hello\n", client.gets } }
        assert_equal [most, clients.size], [server.instance_variable_get(:@lingering).size, server.connections]
        clients.each(&:close)
        server.stop
      end
    end
  ensure
    linger_at_most(given) if given
  end

  # @return [Integer] how many it were before
  def linger_at_most(count)
    Reactor::Server.send(:remove_const, :MOST_LINGERING).tap do
      Reactor::Server.const_set(:MOST_LINGERING, count)
      Reactor::Server.send(:private_constant, :MOST_LINGERING)
    end
  end
end

# frozen_string_literal: true

require_relative "helper"
require_relative "transactions"
require "net/http"
require "tmpdir"

# `rackup -s reactor`: workers, signals and replacements, tested from outside.
class TestRackup < ReactorTest
  def setup
    super
    needs_fork
    skip "no rackup here" unless system(RbConfig.ruby, "-e", 'require "rackup"', err: File::NULL)
  end

  CONFIG = <<~RUBY
    run lambda { |env|
      sleep 0.05 if env["PATH_INFO"] == "/slow"
      Process.kill(:KILL, Process.pid) if env["PATH_INFO"] == "/die"
      loop { } if env["PATH_INFO"] == "/compute"
      [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
    }
  RUBY

  # Yields the port and the PID of a server; returns its exit status and its output.
  def rackup(*options, signal: :TERM, config: CONFIG)
    Dir.mktmpdir do |folder|
      file = File.join(folder, "config.ru")
      File.write(file, config)
      run_example("-e", 'require "rackup"; Rackup::Server.start', "--", "-s", "reactor", "-o", "127.0.0.1", "-p", "0", "-E", "none",
                  *options.flat_map { |option| ["-O", option] }, file, signal: signal) { |words, pid| yield words[/:(\d+)[; ]/, 1].to_i, pid }
    end
  end

  def get(port, path = "/") = Net::HTTP.get("127.0.0.1", path, port)

  def test_one_process
    %i[TERM INT].each do |signal|
      ended = rackup("Connections=10", "HeaderTimeout=0.5", signal: signal) { |port, pid| assert_equal pid.to_s, get(port) }
      assert_equal [0, ""], ended, signal
    end
  end

  def test_workers_share_the_work_and_one_that_dies_is_replaced
    status, words = rackup("Workers=2") do |port, pid|
      pids = nil
      assert eventually { (pids = Array.new(20) { get(port) }.uniq).size == 2 }
      refute_includes pids, pid.to_s
      assert_raises(EOFError, Errno::ECONNRESET) { Net::HTTP.start("127.0.0.1", port) { |http| http.max_retries = 0; http.get("/die") } }
      assert eventually { (Array.new(20) { get(port) }.uniq - pids).size == 1 }
    end
    assert_equal 0, status
    assert_match(/worker \d+ ended \(pid \d+ SIGKILL/, words)
  end

  def test_no_request_is_lost_when_workers_are_replaced_and_when_the_service_ends
    status, words = rackup("Workers=2") do |port, pid|
      before = Array.new(20) { get(port) }.uniq
      ended = false
      loads = Array.new(4) { Thread.new { Array.new(200) { get(port) }.push(*(get(port) until ended)) } }
      %i[HUP USR1].each do |signal|
        Process.kill(signal, pid)
        assert eventually { (before & Array.new(20) { get(port) }.uniq).empty? }
        before = Array.new(20) { get(port) }.uniq
      end
      ended = true
      assert_operator loads.map(&:value).flatten.uniq.size, :>=, 4
      @slow = Array.new(4) { track(TCPSocket.new("127.0.0.1", port)).tap { |socket| socket.write("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n") } }
    end
    assert_equal [0, ""], [status, words]
    @slow.each { |socket| assert_match(/\AHTTP.1.1 200 OK.*\r\n\r\n\d+\z/m, socket.read) }
  end

  def test_a_signal_to_all_processes_cuts_no_answer
    ended = rackup("Workers=2", signal: nil) do |port, pid|
      slow = Array.new(4) { track(TCPSocket.new("127.0.0.1", port)).tap { |socket| socket.write("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n") } }
      Process.kill(:TERM, -pid)
      slow.each { |socket| assert_match(/\AHTTP.1.1 200 OK.*\r\n\r\n\d+\z/m, socket.read) }
    end
    assert_equal [0, ""], ended
  end

  def test_workers_that_compute_are_killed_when_their_time_is_over
    status, = rackup("Workers=2", "StopTimeout=0.01") do |port, pid|
      before = Array.new(20) { get(port) }.uniq
      @busy = track(TCPSocket.new("127.0.0.1", port))
      @busy.write("GET /compute HTTP/1.1\r\nHost: a\r\n\r\n")
      Process.kill(:HUP, pid)
      assert eventually { (before & (Array.new(10) { get(port) }.uniq rescue before)).empty? }
    end
    assert_equal 0, status
    assert_includes [[:value, ""], [:raised, Errno::ECONNRESET]], outcome { @busy.read }
  end

  # The request waits between two rows when the server's time is over.
  Transactions::LIBRARIES.each_key do |library|
    define_method("test_a_request_that_is_cut_off_rolls_back_its_transaction_of_#{library}") do
      reason = Transactions.absence(library)
      skip reason if reason
      require "pg"
      PostgresServer.run do |server|
        other = PG.connect(**server.options)
        other.exec("CREATE TABLE transfers (name text)")
        inside = -> { other.exec("SELECT count(*) FROM pg_locks WHERE relation = 'transfers'::regclass AND mode = 'RowExclusiveLock'").getvalue(0, 0).to_i }
        status, words = rackup("StopTimeout=1", config: <<~RUBY) do |port, _|
          require "#{__dir__}/transactions"
          client = Transactions.open("#{library}", #{server.port}, 1)
          run ->(_) { client.transfer("request", ->(_) { sleep }); [200, {}, []] }
        RUBY
          @client = track(TCPSocket.new("127.0.0.1", port))
          @client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
          assert eventually { inside.call == 1 }, "no transaction was begun"
        end
        assert_equal [0, ""], [status, words]
        assert_equal ["", "0", 0], [@client.read, other.exec("SELECT count(*) FROM transfers").getvalue(0, 0), inside.call]
      ensure
        other&.close
      end
    end
  end

  def test_an_address_in_use_is_an_error_and_so_are_wrong_options
    taken = track(TCPServer.new("127.0.0.1", 0))
    { ["Workers=2", "Port=#{taken.addr[1]}"] => "EADDRINUSE", ["Workers=x"] => "ArgumentError", ["HeaderSize=0"] => "must be positive" }.each do |options, word|
      child = run_child("require 'rackup/handler/reactor'; Rackup::Handler::Reactor.run(->(_) {}, Host: '127.0.0.1', **ARGV.to_h { |o| o.split('=').then { |k, v| [k.to_sym, v] } })",
                        *options, gems: true)
      refute_predicate child.status, :success?
      assert_includes child.err, word
    end
  end

  def test_an_unknown_backend_is_an_error_before_anything_is_announced_or_forked
    %w[0 2].each do |workers|
      child = run_child("require 'rackup/handler/reactor'; Rackup::Handler::Reactor.run(->(_) {}, Host: '127.0.0.1', Port: 0, Workers: ARGV[0])",
                        workers, gems: true, env: { "REACTOR_BACKEND" => "select" })
      refute_predicate child.status, :success?
      assert_includes child.err, 'unknown backend "select"'
      refute_match(/serves|worker/, child.err)
    end
  end
end

# frozen_string_literal: true

require_relative "helper"
require_relative "transactions"
require "net/http"
require "open3"
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
                  *options.flat_map { |option| ["-O", option] }, file, signal: signal) { |words, pid| yield (@words = words)[/:(\d+)[;, ]/, 1].to_i, pid }
    end
  end

  def get(port, path = "/") = Net::HTTP.get("127.0.0.1", path, port)

  def test_one_process
    %i[TERM INT].each do |signal|
      ended = rackup("Connections=10", "HeaderTimeout=0.5", signal: signal) { |port, pid| assert_equal pid.to_s, get(port) }
      assert_equal [0, ""], ended, signal
    end
  end

  def test_what_runs_is_said_at_the_start
    ENV["WEB_CONCURRENCY"] = "2"
    ended = rackup("HeaderTimeout=3") { |port, pid| refute_equal pid.to_s, get(port) }
    assert_equal [0, ""], ended
    assert_match(%r{\Areactor [\d.]+ serves http://127.0.0.1:\d+ in 2 workers \(Ruby #{RUBY_VERSION}, #{BACKEND || '[a-z]+'}, .*\bheader_timeout 3, .*\); Ctrl-C ends it}, @words)
    ended = rackup("Workers=0") { |port, pid| assert_equal pid.to_s, get(port) }
    assert_equal [0, ""], ended
  ensure
    ENV.delete("WEB_CONCURRENCY")
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

  # With a listener for each worker, half of the connections wait for the one that computes.
  def test_a_worker_that_computes_holds_back_no_new_connection
    Dir.mktmpdir do |gate|
      config = "run ->(env) { env['PATH_INFO'] == '/busy' && Fiber.blocking { File.write('#{gate}/begun', ''); nil until File.exist?('#{gate}/go') }
                              [200, {}, [Process.pid.to_s]] }"
      status, = rackup("Workers=2", config: config) do |port, _|
        busy = Thread.new { get(port, "/busy") }
        assert eventually { File.exist?("#{gate}/begun") }
        others = Array.new(40) { Timeout.timeout(TEST_TIMEOUT) { get(port) } }.uniq
        File.write("#{gate}/go", "")
        assert_equal 1, others.size
        refute_includes others, busy.value
      ensure
        File.write("#{gate}/go", "")
      end
      assert_equal 0, status
    end
  end

  def test_workers_share_a_listener_unless_the_options_say_otherwise
    skip "no /proc/net/tcp" unless File.exist?("/proc/net/tcp")
    { [] => 1, ["ReusePort=false"] => 1, ["ReusePort=true"] => 3 }.each do |options, listeners|
      ended = rackup("Workers=3", *options) do |port, _|
        assert_equal listeners, File.foreach("/proc/net/tcp").count { |line| line.match?(/\A\s*\d+: 0100007F:#{format('%04X', port)} \h+:0000 0A /) }
        assert_match(/\A\d+\z/, get(port))
      end
      assert_equal [0, ""], ended
    end
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
    assert_equal 0, status
    said = words.lines.map { |line| line.match(/ reactor: workers (\d+, \d+) (are replaced|serve now)\n/)&.captures }
    assert_equal ["are replaced", "serve now"] * 2, said.map { |line| line&.last }
    assert_equal said[1].first, said[2].first
    refute_equal said[0].first, said[1].first
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

  def test_workers_that_compute_are_killed_when_their_time_limit_elapses
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

  # A successor may bind the path while the server still answers.
  def test_the_end_leaves_the_socket_of_a_successor
    [[], %w[Workers=2]].each do |options|
      Dir.mktmpdir do |folder|
        path = File.join(folder, "s")
        ask = lambda do |target|
          UNIXSocket.open(path) { |socket| socket.write("GET #{target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") && socket.read.lines.last }
        end
        Dir.mktmpdir do |gate|
          File.mkfifo(go = File.join(gate, "go"))
          config = "run ->(env) { env['PATH_INFO'] == '/slow' && (File.write('#{gate}/begun', ''); File.read('#{go}')); [200, {}, [Process.pid.to_s]] }"
          first = unix(path, *options, config: config)
          slow = Thread.new { ask.call("/slow") }
          assert eventually { File.exist?("#{gate}/begun") }
          Process.kill(:TERM, first.pid)
          assert eventually { !File.exist?(path) }
          second = unix(path, *options, config: config)
          File.write(go, "")
          assert_match(/\A\d+\z/, slow.value)
          assert_equal 0, ended(first)
          assert_match(/\A\d+\z/, ask.call("/"))
          Process.kill(:TERM, second.pid)
          assert_equal 0, ended(second)
          refute_path_exists path
        ensure
          [first, second].compact.each { |server| kill(server.pid) if @running.delete(server.pid) }
        end
      end
    end
  end

  # A server on a UNIX socket, once it listens there.
  def unix(path, *options, config:)
    file = "#{path}.ru"
    File.write(file, config)
    io = IO.popen([{ "REACTOR_BACKEND" => BACKEND.to_s }, RbConfig.ruby, "-w", "-I", LIB, "-e", 'require "rackup"; Rackup::Server.start', "--", "-s", "reactor", "-o",
                   "unix:#{path}", "-E", "none", *options.flat_map { |option| ["-O", option] }, file], err: %i[child out])
    assert_match(/serves unix/, Timeout.timeout(TEST_TIMEOUT) { io.gets })
    (@running ||= {})[io.pid] = true
    track(io)
  end

  def ended(io) = reap(io.pid, TEST_TIMEOUT).exitstatus.tap { @running.delete(io.pid) }

  # HUP and QUIT stop a server without workers as TERM does; USR1 opens its logs again.
  def test_signals_without_workers
    %i[HUP QUIT].each do |signal|
      ended = rackup(signal: nil) do |port, pid|
        slow = track(TCPSocket.new("127.0.0.1", port))
        slow.write("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        Process.kill(:USR1, pid)
        Process.kill(signal, pid)
        assert_match(/\AHTTP.1.1 200 OK.*\r\n\r\n\d+\z/m, slow.read)
      end
      assert_equal [0, ""], ended, signal
    end
    Dir.mktmpdir do |folder|
      out = child_says(<<~RUBY, folder, gems: true)
        require "logger"
        require "reactor/rack"
        log = File.join(ARGV.first, "log")
        logger = Logger.new(log, progname: "access")
        Reactor::Rack.new(->(_) { [200, {}, ["ok"]] }, access_log: logger).run(host: "127.0.0.1", port: 0) do |service|
          Thread.new do
            ask = -> { TCPSocket.open("127.0.0.1", service.url[/\\d+$/]) { |socket| socket.write("GET / HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n") && socket.read } }
            ask.call
            File.rename(log, log + ".1")
            Process.kill(:USR1, Process.pid)
            ask.call && Thread.pass until File.exist?(log)
            service.stop
          end
        end
        p File.exist?(log), File.read(log + ".1").include?("GET / HTTP/1.1")
      RUBY
      assert_equal "true\ntrue\n", out
    end
  end

  def test_several_addresses
    Dir.mktmpdir do |folder|
      path = File.join(folder, "s")
      [[], ["Workers=2", "ReusePort=true"]].each do |options|
        ended = rackup("Host=127.0.0.1,unix:#{path}", "SocketMode=0600", "Backlog=7", *options) do |port, _|
          assert_includes @words, ", unix:#{path}"
          assert_equal 0o600, File.stat(path).mode & 0o777
          assert_match(/\A\d+\z/, get(port))
          UNIXSocket.open(path) { |socket| socket.write("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") && assert_match(/200 OK/, socket.read) }
        end
        assert_equal [0, ""], ended
        refute_path_exists path
      end
      taken = track(TCPServer.new("127.0.0.1", 0))
      child = run_child("require 'reactor/rack'; Reactor::Rack.new(->(_) {}).run(host: ['unix:' + ARGV[0], '127.0.0.1'], port: ARGV[1])", path, taken.addr[1].to_s)
      assert_includes child.err, "EADDRINUSE"
      refute_path_exists path
    end
  end

  def test_a_file_of_settings
    Dir.mktmpdir do |folder|
      file, log = File.join(folder, "settings.rb"), File.join(folder, "log")
      File.write(file, <<~RUBY)
        require "logger"
        said = []
        { workers: 2, header_timeout: 3, stop_timeout: 5, access_log: Logger.new("#{log}"), before_fork: -> { said << Process.pid },
          after_fork: -> { File.write("#{folder}/\#{Process.pid}", said.first) } }
      RUBY
      worker = server = nil
      ended = rackup("Settings=#{file}", "HeaderTimeout=4") { |port, pid| worker, server = get(port), pid }
      assert_equal [0, ""], ended
      assert_equal server.to_s, File.read(File.join(folder, worker))
      assert_match(/ in 2 workers .*header_timeout 4\b/, @words)
      assert_includes File.read(log), '"GET / HTTP/1.1" 200'
      File.write(file, "Hash")
      child = run_child("require 'rackup/handler/reactor'; Rackup::Handler::Reactor.run(->(_) {}, Settings: ARGV[0])", file, gems: true)
      assert_equal [1, "reactor does not start: #{file} must return a Hash, not Class\n"], [child.status.exitstatus, child.err]
      File.write(file, "\nInteger('x')")
      child = run_child("require 'rackup/handler/reactor'; Rackup::Handler::Reactor.run(->(_) {}, Settings: ARGV[0])", file, gems: true)
      assert_includes child.err, "#{file}:2:in"
    end
  end

  def test_options_of_the_scheduler
    Dir.mktmpdir do |folder|
      file, stalls = File.join(folder, "settings.rb"), File.join(folder, "stalls")
      File.write(file, "{ scheduler: { stall: 0.01, on_stall: ->(stall) { File.write(#{stalls.inspect}, stall.class) } } }")
      config = "run ->(_) { until File.exist?(#{stalls.inspect}) do 1_000_000.times { nil } end; [200, {}, [File.read(#{stalls.inspect})]] }"
      assert_equal [0, ""], (rackup("Settings=#{file}", config: config) { |port, _| assert_equal "Reactor::Stall", get(port) })
      { "stall: -1" => "stall", "on_error: nil" => "scheduler has no on_error" }.each do |option, words|
        File.write(file, "{ scheduler: { #{option} } }")
        child = run_child("require 'rackup/handler/reactor'; Rackup::Handler::Reactor.run(->(_) {}, Settings: ARGV[0])", file, gems: true)
        assert_match(/\Areactor does not start: #{words}.*\n\z/, child.err)
      end
    end
  end

  # systemd passes listening sockets from descriptor 3 on, and is told the state by datagrams.
  def test_systemd
    Dir.mktmpdir do |folder|
      listener = track(TCPServer.new("127.0.0.1", 0))
      states = track(Socket.new(:UNIX, :DGRAM).tap { |socket| socket.bind(Addrinfo.unix(File.join(folder, "notify"))) })
      [0, 2].each do |workers|
        code = <<~RUBY
          require "reactor/rack"
          ENV.update("LISTEN_PID" => Process.pid.to_s, "LISTEN_FDS" => "1")
          Reactor::Rack.new(->(_) { [200, {}, [ENV.key?("LISTEN_FDS").to_s]] }).run(workers: #{workers}) { |service| $stderr.puts service.url }
        RUBY
        pid = spawn({ "NOTIFY_SOCKET" => File.join(folder, "notify"), "REACTOR_BACKEND" => BACKEND.to_s }, RbConfig.ruby, "-w", "-I", LIB, "-e", code,
                    3 => listener, err: File.join(folder, "err"))
        assert_equal "READY=1", Timeout.timeout(TEST_TIMEOUT) { states.recv(100) }
        assert_equal "http://127.0.0.1:#{listener.addr[1]}\n", File.read(File.join(folder, "err"))
        assert_equal "false", get(listener.addr[1])
        Process.kill(:TERM, pid)
        assert_equal "STOPPING=1", Timeout.timeout(TEST_TIMEOUT) { states.recv(100) }
        assert_equal 0, reap(pid, TEST_TIMEOUT).exitstatus
        pid = nil
      ensure
        kill(pid) if pid
      end
    end
  end

  def test_a_worker_that_does_not_answer_its_parent_is_replaced
    status, words = rackup("Workers=1", "WorkerTimeout=1") do |port, _|
      first = get(port)
      assert_raises(EOFError, Errno::ECONNRESET) { Net::HTTP.start("127.0.0.1", port) { |http| http.max_retries = 0; http.get("/compute") } }
      assert eventually { (get(port) rescue first) != first }
    end
    assert_equal 0, status
    assert_match(/worker \d+ has not answered for 1 s and is killed\n.*worker \d+ ended \(pid \d+ SIGKILL/m, words)
  end

  # rackup removes its PID file in such a handler.
  def test_a_worker_that_ends_runs_no_exit_handler_of_its_parent
    Dir.mktmpdir do |folder|
      config = "at_exit { File.write('#{folder}/ran', \"\#{Process.pid}\\n\", mode: 'a') }\n#{CONFIG}"
      server = nil
      status, = rackup("Workers=2", config: config) do |port, pid|
        server = pid
        before = Array.new(20) { get(port) }.uniq
        Process.kill(:HUP, pid)
        assert eventually { (before & Array.new(20) { get(port) }.uniq).empty? }
      end
      assert_equal [0, "#{server}\n"], [status, File.read("#{folder}/ran")]
    end
  end

  def test_workers_that_cannot_start_end_the_service
    child = run_child(<<~RUBY, gems: true)
      require "logger"
      require "reactor/rack"
      at_exit { puts "at the end" }
      rack = Reactor::Rack.new(->(_) {}, logger: Logger.new(IO::NULL))
      rack.define_singleton_method(:serve) { |_| exit!(3) }
      rack.run(host: "127.0.0.1", port: 0, workers: 8)
    RUBY
    assert_equal [1, "at the end\n"], [child.status.exitstatus, child.out]
    assert_includes child.err, "5 workers in a row ended before they served"
  end

  # Runs a service in a child. `beside` runs in a thread, with the service's `url` and what it logs (`LOGGED`); then the service ends.
  #
  # @return [Child]
  def service(keywords, beside, before = "")
    run_child(<<~RUBY, gems: true)
      require "net/http"
      require "reactor/rack"
      require "tmpdir"
      LOGGED = Thread::Queue.new
      LOGGED.define_singleton_method(:error) { |text = nil, &block| push(text || block.call) }
      LOGGED.define_singleton_method(:info) { |text| }
      #{before}
      main = Process.pid
      get = ->(url) { Net::HTTP.get(URI(url)) }
      Reactor::Rack.new(->(_) { [200, {}, [Process.pid.to_s]] }, logger: LOGGED).run(host: "127.0.0.1", port: 0, #{keywords}) do |service|
        Thread.new do
          url = service.url
          #{beside}
        ensure
          Process.kill(:TERM, main)
        end
      end
    RUBY
  end

  # The handler's push makes the thread runnable that is about to wait, and Ruby takes that back.
  def test_no_signal_is_lost_that_comes_when_the_parent_is_about_to_wait
    out = child_says(<<~RUBY)
      require "reactor/rack"
      Reactor::Rack.new(->(_) {}).run(host: "127.0.0.1", port: 0, workers: 1) do |service|
        asked, ask = IO.pipe
        main = Process.pid
        fork { ask.close; Process.kill(:USR1, main) while asked.read(1) }
        30_000.times { ask.write("."); service.send(:next_event) }
        ask.close
        Process.wait
        service.stop
      end
      puts "none"
    RUBY
    assert_equal "none\n", out
  end

  def test_a_hook_that_raises_at_a_replacement_leaves_the_worker
    child = service("workers: 1, before_fork: -> { raise Errno::EAGAIN if $raises }", <<~RUBY)
      first = get.(url)
      $raises = true
      Process.kill(:HUP, main)
      puts LOGGED.pop[/EAGAIN.*; \\d+ keeps running/].include?(first), get.(url) == first
    RUBY
    assert_equal [0, "true\ntrue\n"], [child.status.exitstatus, child.out], child.err
  end

  def test_the_end_does_not_wait_for_a_worker_that_does_not_begin
    child = service("workers: 1, stop_timeout: 0, after_fork: -> { W << 1; sleep if $hangs }", <<~RUBY, "R, W = IO.pipe")
      R.getc && get.(url)
      $hangs = true
      Process.kill(:HUP, main)
      puts R.getc
    RUBY
    assert_equal [0, "1\n"], [child.status.exitstatus, child.out], child.err
  end

  def test_systemd_is_notified_once_all_workers_serve
    child = service("workers: 2, before_fork: -> { $starts += 1 }, after_fork: -> { exit!(1) if $starts == 1 }", "puts STATES.recv(100), LOGGED.pop", <<~RUBY)
      $starts = 0
      STATES = Socket.new(:UNIX, :DGRAM).tap { |socket| socket.bind(Addrinfo.unix(ENV["NOTIFY_SOCKET"] = File.join(Dir.mktmpdir, "notify"))) }
    RUBY
    assert_equal 0, child.status.exitstatus, child.err
    assert_match(/\AREADY=1\nworker \d+ ended \(pid \d+ exit 1\) and is replaced\n\z/, child.out)
  end

  def test_a_full_queue_of_systemd_holds_up_nothing
    [0, 1].each do |workers|
      child = service("workers: #{workers}", "get.(url); puts LOGGED.pop", <<~RUBY)
        STATES = Socket.new(:UNIX, :DGRAM).tap { |socket| socket.bind(Addrinfo.unix(ENV["NOTIFY_SOCKET"] = File.join(Dir.mktmpdir, "notify"))) }
        loop { STATES.sendmsg_nonblock("full", 0, STATES.local_address) } rescue Errno::EAGAIN
      RUBY
      assert_equal 0, child.status.exitstatus, child.err
      assert_match(/\Asystemd has not been told READY=1: Resource temporarily unavailable/, child.out)
    end
  end

  def test_a_descriptor_that_does_not_listen_is_refused
    code = 'ENV.update("LISTEN_PID" => Process.pid.to_s, "LISTEN_FDS" => "1"); require "reactor/rack"; Reactor::Rack.new(->(_) {}).run'
    File.open(File::NULL) do |file|
      _, err, status = Open3.capture3({ "REACTOR_BACKEND" => BACKEND.to_s }, RbConfig.ruby, "-I", LIB, "-e", code, 3 => file)
      assert_equal [1, nil], [status.exitstatus, err[/NoMethodError/]]
      assert_match(/not a (listening socket|socket file descriptor)/, err)
    end
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

  def test_what_keeps_the_server_from_starting_is_said_in_one_line
    taken = track(TCPServer.new("127.0.0.1", 0))
    { ["Workers=2", "Port=#{taken.addr[1]}"] => "127.0.0.1:#{taken.addr[1]}", ["Port=65536"] => "port must be between 0 and 65535, not \"65536\"", ["Port=x"] => "port must be",
      ["Host=unix:/no/folder"] => "/no/folder", ["Host=unix:/#{"x" * 200}"] => "unix:/xxx", ["Certificate=/no/file"] => "/no/file", ["Certificate=#{__FILE__}"] => __FILE__,
      ["Settings=/no/file"] => "/no/file", ["TrustedProxies=a"] => "trusted_proxies", ["Workers=x"] => "must be an integer or auto", ["Workers=1.5"] => "must be an integer or auto", ["workers=4"] => "did you mean Workers?",
      ["HeaderTimeOut=3"] => "did you mean HeaderTimeout?", ["Threads=5"] => "unknown option Threads", ["HeaderSize=0"] => "must be positive", ["ReusePort=1"] => "must be true or false",
      ["SocketMode=9"] => "must be an octal number", ["SocketMode=1777"] => "between 0 and 0777", ["Backlog=0"] => "backlog", ["WorkerTimeout=-1"] => "worker_timeout" }.each do |options, word|
      child = run_child("require 'rackup/handler/reactor'; Rackup::Handler::Reactor.run(->(_) {}, Host: '127.0.0.1', **ARGV.to_h { |o| o.split('=').then { |k, v| [k.to_sym, v] } })",
                        *options, gems: true)
      assert_equal [1, 1], [child.status.exitstatus, child.err.lines.size], child.err
      assert_match(/\Areactor does not start: .*#{Regexp.escape(word)}/, child.err)
    end
    child = run_child("require 'rackup/handler/reactor'; begin; Rackup::Handler::Reactor.run(->(_) {}, Workers: 'x'); rescue SystemExit; p $!.cause.class; end", gems: true)
    assert_equal "ArgumentError\n", child.out
  end

  # Rails::Server gives options of WEBrick to every server.
  def test_the_options_of_rails_server_are_known
    child = run_child(<<~RUBY, gems: true)
      require "rackup/handler/reactor"
      Rackup::Handler::Reactor.run(->(_) {}, Host: "127.0.0.1", Port: 0, DoNotReverseLookup: true, user_supplied_options: [:Port], early_hints: nil) { |service| service.stop }
    RUBY
    assert_predicate child.status, :success?, child.err
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

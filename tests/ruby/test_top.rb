# frozen_string_literal: true

require_relative "helper"
require "io/console"
require "json"
require "open3"
require "pty"
require "reactor/observe/snapshot_server"
require "reactor/top"
require "tmpdir"

# Reactor.observe and the executable reactor-top, in a real terminal and in scripts.
class TestTop < ReactorTest
  TOP = File.join(ROOT, "exe/reactor-top")

  def setup
    super
    needs_fork
  end

  def env = { "RUBYOPT" => nil }

  # Two schedulers on threads of their own, and an observed process that ends when its standard input does.
  SCHEDULERS = <<~'RUBY'
    threads = Array.new(2) do |number|
      Thread.new do
        Fiber.set_scheduler(Reactor::Scheduler.new)
        Fiber.schedule { Reactor.fiber_name = "sleeper #{number}"; sleep }
        Fiber.schedule { Thread::Queue.new.pop(timeout: 600) }
        Fiber.schedule { loop { sleep 0.01 } }
        Fiber.scheduler.run
      end
    end
    sleep 0.001 until Reactor.const_get(:Schedulers).list.sum { |scheduler| scheduler.stats[:parked] } >= 6
  RUBY

  # Runs the code in an observed child, then the block with its PID. The child is killed afterwards.
  def observed(code = SCHEDULERS)
    run_child("Reactor.observe\n#{code}\nputs 'ready'\nThread.stop while true", env: env) do |pid, until_line|
      until_line.("ready")
      yield pid
    ensure
      begin
        Process.kill(:KILL, pid)
      rescue Errno::ESRCH
        nil
      end
      FileUtils.rm_f(Reactor::SocketPlace.path(pid))
    end
  end

  # @return [Array(String, String, Integer)] standard output and error, and the exit status
  def top(*arguments)
    out, error, status = Open3.capture3(env, RbConfig.ruby, "-w", TOP, "--wait", TEST_TIMEOUT.to_s, *arguments.map(&:to_s))
    [out, error, status.exitstatus]
  end

  # --- for scripts -----------------------------------------------------------------------------------------------

  def test_all_schedulers_of_a_process_are_printed_as_json
    observed do |pid|
      out, error, status = top("--once", "--json", pid)
      assert_equal ["", 0], [error, status]
      snapshot = JSON.parse(out, symbolize_names: true)
      assert_equal [pid, 2], [snapshot[:pid], snapshot[:schedulers].size]
      assert_operator snapshot[:snapshot_seconds], :>, 0
      snapshot[:schedulers].each do |row|
        assert_equal BACKEND.to_s, row[:backend]
        assert_equal [0, 1], row[:waits].values_at(:io, :block)
        assert_includes 1..2, row[:waits][:sleep], "one of the sleepers may be ready"
        assert_equal 3, row[:stats][:live]
        assert_operator row[:utilization], :<=, 1
        assert_operator row[:lateness][:count], :>, 0 if row[:stats][:turns] > 10
        sleeper = row[:fibers].find { |fiber| fiber[:name]&.start_with?("sleeper") }
        assert_equal "sleep", sleeper[:hook]
        assert_match(/\A-e:\d+:in /, sleeper[:place])
      end
      assert_equal ["sleeper 0", "sleeper 1"], snapshot[:schedulers].flat_map { |row| row[:fibers].filter_map { |fiber| fiber[:name] } }.sort
    end
  end

  def test_one_look_is_printed_as_text
    observed do |pid|
      out, error, status = top("--once", pid)
      assert_equal ["", 0], [error, status]
      assert_match(/process #{pid} .*\n\n#1 .*\n  busy .*\n  turn p99 .*\n  late p99/, out)
      assert_equal 2, out.scan(/^#\d Reactor::/).size
    end
  end

  def test_a_loop_that_computes_or_blocks_is_looked_at
    {
      "computes" => "Fiber.schedule { puts 'ready'; nil while true }",
      "blocks" => "Fiber.schedule { puts 'ready'; Fiber.blocking { sleep } }"
    }.each do |what, code|
      observed("Fiber.set_scheduler(Reactor::Scheduler.new)\n#{code}\nFiber.scheduler.run") do |pid|
        out, error, status = top("--once", "--json", pid)
        assert_equal ["", 0], [error, status], what
        assert_equal 1, JSON.parse(out)["schedulers"][0]["stats"]["live"], what
      end
    end
  end

  def test_slow_turns_are_printed_with_their_backtraces
    observed(<<~'RUBY') do |pid|
      ended = Thread::Queue.new
      Thread.new do
        Fiber.set_scheduler(Reactor::Scheduler.new(stall: 0.02, on_stall: ->(stall) { ended << true if stall.over && stall.fiber }))
        Fiber.schedule { Reactor.fiber_name = "slow"; loop { sleep 0.01; Fiber.blocking { sleep 0.1 } } }
        Fiber.scheduler.run
      end
      ended.pop
    RUBY
      stalls = JSON.parse(top("--once", "--json", pid).first)["schedulers"][0]["stalls"]
      assert(stalls.any? { |stall| stall["name"] == "slow" && stall["seconds"] >= 0.02 && stall["backtrace"].join.include?("-e:") })
      assert_includes top("--once", pid).first, "slowest turns"
    end
  end

  # The collections that snapshots cause mark the stacks of all fibers.
  def test_a_look_makes_no_more_objects_if_fibers_stand_deeper
    run_scheduler do
      shallow, deep = [0, 40].map do |depth|
        fibers = Array.new(Reactor::SnapshotServer::FIBERS) { Fiber.schedule { wait_at(depth) } }
        Reactor::SnapshotServer.snapshot
        made = objects_made { Reactor::SnapshotServer.snapshot }
        fibers.each(&:kill)
        made
      end
      assert_operator deep - shallow, :<, Reactor::SnapshotServer::FIBERS, "objects for each fiber"
    end
  end

  def wait_at(depth) = depth.zero? ? sleep(3600) : wait_at(depth - 1)

  def objects_made
    before = GC.stat(:total_allocated_objects)
    yield
    GC.stat(:total_allocated_objects) - before
  end

  # The snapshot of this process, with one scheduler.
  def document
    answer = nil
    run_scheduler do |scheduler|
      answer = { snapshot_seconds: 0.001, **Reactor::SnapshotServer.snapshot }
      answer[:schedulers].select! { |row| row[:id] == scheduler.object_id }
    end
    answer
  end

  def test_a_small_terminal_shows_the_slowest_turns_and_the_longest_waits
    document = self.document
    row = document[:schedulers].first
    row[:fibers] = Array.new(30) { |i| { name: "client #{i}", state: "waiting", hook: "io", events: "readable", seconds: 1.0, place: "/a/b/a.rb:#{i}" } }
    row[:stalls] = Array.new(2) { |i| { name: "slow #{i}", seconds: 0.1, backtrace: ["/a.b/b.rb:#{i}"] } }
    view = Reactor::Top::View.new([Reactor::Top::Snapshot.new(document)])
    lines = view.lines(24, 80)
    assert_equal 24, lines.size
    assert_equal ["slowest turns", "slow 0", "waiting longest", "client 0"], lines.join("\n").scan(/waiting longest|client 0|slowest turns|slow 0/)
    assert_match(/… \d+ more lines/, lines.last)
    assert_includes lines, "      1.000 s  io readable  client 0  a.rb:0"
    assert_includes lines, "      0.100 s  slow 0  b.rb:0"
    (1..60).each { |height| assert_operator view.lines(height, 80).size, :<=, height }
  end

  # --- what cannot be looked at ----------------------------------------------------------------------------------

  def test_a_process_that_cannot_be_observed_is_reported
    pid = Process.spawn("true")
    Process.wait(pid)
    assert_equal ["", "reactor-top: there is no process #{pid}\n", 1], top(pid, "--once")
    assert_equal ["", "reactor-top: process #{Process.pid} cannot be observed: it must call Reactor.observe\n", 1], top("--once", Process.pid)
    [[], ["x"], [1, 2], ["--once", "--json"], ["--nonsense", 1], ["--json", 1], ["--interval", 0, 1], ["--wait", 0, 1]].each do |arguments|
      assert_equal 2, top(*arguments).last, arguments.inspect
    end
    assert_match(/needs a terminal/, top(Process.pid)[1])
  end

  def test_a_stopped_process_is_reported_and_not_waited_for
    observed do |pid|
      Process.kill(:STOP, pid)
      assert_equal ["", "reactor-top: process #{pid} has not answered for 0.1 s\n", 1], top("--wait", 0.1, "--once", pid)
    end
  end

  def test_a_folder_that_others_can_enter_is_refused
    Dir.mktmpdir do |place|
      folder = File.join(place, "reactor-#{Process.euid}")
      ways = { open: -> { Dir.mkdir(folder, 0o755) }, link: -> { File.symlink("/tmp", folder) } }
      ways[:other_user] = -> { Dir.mkdir(folder, 0o700) && File.chown(1, nil, folder) } if Process.euid.zero?
      ways.each do |way, make|
        make.call
        child = run_child(<<~RUBY, env: env)
          require "reactor/top"
          Etc.singleton_class.prepend(Module.new { def systmpdir = #{place.dump} })
          p Reactor::Top.run(["--once", "1"])
          begin
            Reactor.observe
          rescue Reactor::SocketPlace::Untrusted => error
            puts error.message
          end
        RUBY
        assert_match(/\A1\n.* is not a folder that only user \d+ can enter\n\z/, child.out, way)
        assert_match(/\Areactor-top: .* is not a folder that only/, child.err, way)
        way == :link ? File.unlink(folder) : Dir.rmdir(folder)
      end
    end
  end

  # --- the observed process --------------------------------------------------------------------------------------

  def test_the_socket_is_its_users_alone_and_goes_with_the_process
    says = child_says(<<~'RUBY', env: env)
      observer = Reactor.observe
      p Reactor.observe.equal?(observer), File.stat(File.dirname(observer.path)).mode.to_s(8)[-3..]
      puts observer.path
    RUBY
    same, mode, path = says.lines(chomp: true)
    assert_equal ["true", '"700"'], [same, mode]
    refute_path_exists path
  end

  def test_a_forked_child_has_no_socket_and_leaves_that_of_its_parent
    says = child_says(<<~'RUBY', env: env)
      observer = Reactor.observe
      Process.wait(fork { exit })
      p File.socket?(observer.path)
      Process.wait(fork { print observer.open?, " ", Reactor.observe.path.end_with?("/#{Process.pid}.sock"), "\n"; $stdout.flush })
      p File.socket?(observer.path)
    RUBY
    assert_equal "true\nfalse true\ntrue\n", says
  end

  # The thread is slow to end, and all fibers wait for it.
  def test_a_fiber_may_close_an_observer
    says = child_says(<<~'RUBY', env: env)
      require "reactor/observe/snapshot_server"
      Reactor::SnapshotServer.prepend(Module.new do
        private def serve
          super
        ensure
          sleep 0.1
        end
      end)
      Reactor.run do
        observer = Reactor.observe
        p UNIXSocket.open(observer.path, &:read).empty?, observer.close
      end
    RUBY
    assert_equal "false\nnil\n", says
  end

  def test_an_observed_program_ends_and_deadlocks_as_without
    assert_equal "", child_says("Reactor.observe; Fiber.set_scheduler(Reactor::Scheduler.new); Fiber.schedule { sleep 0.001 }", env: env)
    child = run_child("Reactor.observe; Fiber.set_scheduler(Reactor::Scheduler.new); Fiber.schedule { Thread::Queue.new.pop }; Fiber.scheduler.run", env: env)
    refute_predicate child.status, :success?
    assert_match(/No live threads left. Deadlock\?/, child.err)
  end

  def test_a_reader_that_does_not_read_holds_nothing_up
    observed do |pid|
      idle = Array.new(3) { UNIXSocket.new(Reactor::SocketPlace.path(pid)) }
      assert_equal 0, top("--once", pid).last
      idle.each(&:close)
    end
  end

  # --- in a terminal ---------------------------------------------------------------------------------------------

  # A terminal in which reactor-top runs.
  class Terminal
    attr_reader :text, :pid

    def initialize(env, pid, test)
      @test = test
      @master, @slave = PTY.open
      @slave.winsize = [40, 120]
      @before = mode
      @text = +""
      @error, error = IO.pipe
      options = %W[--interval 0.05 --wait #{TestTop::TEST_TIMEOUT}]
      @pid = Process.spawn(env, RbConfig.ruby, "-w", TOP, *options, pid.to_s, in: @slave, out: @slave, err: error, pgroup: true)
      error.close
    end

    def mode = IO.popen(["stty", "-g"], in: @slave, &:read)

    def send(keys) = @master.write(keys)

    def resize(rows, columns)
      @slave.winsize = [rows, columns]
      Process.kill(:WINCH, @pid)
    end

    # Reads until the text has appeared.
    def expect(pattern)
      limit = TimeLimit.new(TestTop::TEST_TIMEOUT)
      until @text.scrub("").match?(pattern) # a read may end within a character
        raise "never #{pattern.inspect} in #{@text[-2000..] || @text}" if limit.over?
        raise "it has ended: #{@error.read}" if @pid && @text.end_with?("\e[?1049l") && Process.waitpid(@pid, Process::WNOHANG)

        @text << @master.read_nonblock(65_536).force_encoding(Encoding::UTF_8) if @master.wait_readable(0.2)
      end
      self
    end

    # What was drawn after the last text that was read.
    def afresh
      @text << @master.read_nonblock(65_536).force_encoding(Encoding::UTF_8) while @master.wait_readable(0)
      @text.clear
      self
    end

    # @return [Array(Integer, String)] the exit status, and standard error
    def finish
      status = @test.reap(@pid, TestTop::TEST_TIMEOUT)
      @pid = nil
      expect(/\e\[\?25h\e\[\?1049l/)
      @test.assert_equal @before, mode, "the terminal is as it was"
      [status.exitstatus, @error.read]
    ensure
      close
    end

    def close
      Process.kill(:KILL, -@pid) if @pid
      @pid = nil
      [@master, @slave, @error].each(&:close)
    end
  end

  def in_terminal(pid)
    terminal = Terminal.new(env, pid, self)
    yield terminal.expect(/\e\[\?1049h\e\[\?25l.*reactor-top  process #{pid} .*#2 Reactor/m)
  ensure
    terminal&.close
  end

  def test_the_view_runs_until_q_ctrl_c_or_sigterm_and_restores_the_terminal
    observed do |pid|
      { "q" => 0, "\x03" => 0, :TERM => 130 }.each do |ending, status|
        in_terminal(pid) do |terminal|
          terminal.afresh.expect(/busy .* %.*[▁-█]{5}/m) # it keeps taking snapshots
          ending == :TERM ? Process.kill(:TERM, terminal.pid) : terminal.send(ending)
          assert_equal [status, ""], terminal.finish
        end
      end
    end
  end

  def test_the_view_fits_a_terminal_that_is_made_smaller
    observed do |pid|
      in_terminal(pid) do |terminal|
        terminal.resize(10, 40)
        terminal.expect(/… \d+ more lines/).afresh.expect(/\e\[H.*… \d+ more lines/m)
        terminal.expect(/\e\[J\e\[H.*?\e\[J/m)
        frame = terminal.text[/\e\[J\e\[H(.*?)\e\[J/m, 1].split("\r\n").map { |line| line.delete_suffix("\e[K") }
        assert_operator frame.size, :<=, 10
        assert_operator frame.map(&:size).max, :<=, 40
        terminal.send("q")
        assert_equal [0, ""], terminal.finish
      end
    end
  end

  def test_a_process_that_stops_is_reported_and_the_view_continues_when_it_does
    observed do |pid|
      in_terminal(pid) do |terminal|
        Process.kill(:STOP, pid)
        terminal.expect(/process #{pid} has not answered for \d+ s/)
        Process.kill(:CONT, pid)
        frame = /\e\[H(?:(?!has not answered|\e\[J).)*waiting longest(?:(?!\e\[J).)*\e\[J/m
        terminal.afresh.expect(frame)
        Process.kill(:STOP, pid)
        terminal.expect(/has not answered/)
        terminal.send("q")
        assert_equal [0, ""], terminal.finish
      end
    end
  end

  def test_a_process_that_dies_ends_the_view_with_a_message
    observed do |pid|
      in_terminal(pid) do |terminal|
        Process.kill(:KILL, pid)
        status, error = terminal.finish
        assert_equal 1, status
        assert_match(/\Areactor-top: (?:there is no process #{pid}|process #{pid} cannot be observed.*)\n\z/, error)
      end
    end
  end
end

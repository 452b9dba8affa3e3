# frozen_string_literal: true

require_relative "helper"

# Scheduler.new(on_error:) gets each error that would be reported, and the error counts as handled.
class TestOnError < ReactorTest
  # Runs the block in a fiber. Returns what on_error was given, along with the fiber's storage and name at that time.
  def errors_of(&block)
    given = []
    on_error = lambda do |error, fiber|
      given << [error.class, error.message, fiber.equal?(Fiber.current), Fiber[:request], Reactor.fiber_name(fiber)]
    end
    run_plain { Reactor.run(on_error: on_error, &block) }
    given
  end

  def test_the_error_of_a_fiber_is_handled_in_this_fiber
    log = []
    given = errors_of do
      Fiber.schedule do
        Fiber[:request] = 7
        Reactor.fiber_name = "session"
        sleep 0
        raise IndexError, "one"
      end
      Fiber.schedule { sleep 0; raise NotImplementedError, "two" }
      sleep 0 until Fiber.scheduler.live == 1
      log << :goes_on
    end
    assert_equal [[IndexError, "one", true, 7, "session"], [NotImplementedError, "two", true, nil, nil]], given
    assert_equal [:goes_on], log
  end

  def test_an_error_is_reported_even_if_inspect_raises
    child = run_child(<<~RUBY)
      def (on_error = proc { raise "its own" }).inspect = raise("asked")
      [on_error, nil].each do |callback|
        Reactor.run(on_error: callback) do
          fiber = Fiber.schedule { sleep 0.001; raise "mine" }
          def fiber.inspect = raise("asked")
        end
      rescue RuntimeError
        nil
      end
    RUBY
    assert_equal ["its own (RuntimeError)", "mine (RuntimeError)", "mine (RuntimeError)"], child.err.scan(/(?:its own|mine) \(RuntimeError\)/)
    assert_match(/^#<Fiber:.* -e:\d+ .*terminated with exception/, child.err)
  end

  def test_the_error_of_a_watcher_is_handled_in_its_fiber
    r, w = pipe
    w << "x"
    given = errors_of do
      Fiber[:request] = 8
      Fiber.scheduler.on_ready(r) { raise IndexError, "ready" }
    end
    assert_equal [[IndexError, "ready", true, 8, nil]], given
  end

  def test_the_errors_of_a_server_are_handled_and_it_serves_on
    open = ->(_) { raise KeyError, "opened" }
    close = ->(_) { raise KeyError, "closed" }
    said = nil
    given = errors_of do
      Fiber[:request] = 9
      listener = TCPServer.new("127.0.0.1", 0)
      server = Reactor::Server.new(listener, on_open: open, on_close: close, linger: 0) { |socket| raise IndexError, socket.gets.chomp }
      server.start
      port = listener.local_address.ip_port
      said = %w[first second].map { |word| TCPSocket.open("127.0.0.1", port) { |client| client.puts(word); client.read } }
      server.stop
    end
    assert_equal ["", ""], said
    of_the_block, of_callbacks = given.partition { |row| row.first == IndexError }
    assert_equal %w[first second], of_the_block.map { |row| row[1] }
    assert_equal %w[closed closed opened opened], of_callbacks.map { |row| row[1] }.sort
    assert given.all? { |row| row[2..3] == [true, 9] }, given.inspect
  end

  def test_the_later_errors_of_a_group_are_handled_and_the_first_is_raised
    raised = nil
    given = errors_of do
      Fiber[:request] = 10
      Reactor.group do |group|
        all_begun = Thread::Queue.new
        group.async { all_begun.pop; raise IndexError, "first" }
        2.times { |number| group.async { begin sleep ensure raise KeyError, number.to_s end } }
        all_begun << true
      end
    rescue IndexError => raised
      nil
    end
    assert_equal "first", raised.message
    assert_equal [[KeyError, "0", true, 10, nil], [KeyError, "1", true, 10, nil]], given
  end

  def test_an_error_that_is_raised_elsewhere_is_not_passed_to_on_error
    other = Class.new(Exception) # rubocop:disable Lint/InheritException -- neither StandardError nor ScriptError
    { IndexError => -> { Fiber.schedule { raise IndexError } }, # before its first wait: to its caller, the block
      KeyError => -> { raise KeyError },
      other => -> { Fiber.schedule { sleep 0; raise other }; sleep } }.each do |error, block|
      given = []
      assert_raises(error) { run_plain { Reactor.run(on_error: ->(*arguments) { given << arguments }, &block) } }
      assert_empty given
    end
  end

  def test_the_end_of_a_block_around_a_group_is_no_error_of_it
    given = []
    run_plain do
      Reactor.run(on_error: ->(error, _) { given << error }) do
        assert_raises(Reactor::DeadlineExceeded) do
          Reactor.deadline(0.001) do
            Reactor.group(timeout: 60) { Reactor.group { |group| group.async { begin; sleep; ensure; sleep 0.005; end }; sleep } }
          end
        end
        limit = Thread::Queue.new
        assert_raises(Timeout::Error) do
          Reactor.group(timeout: 0.001) do
            Reactor.deadline(0.002) { Reactor.group { |group| group.async { Reactor.shield { limit.pop(timeout: 0.01) } }; sleep } }
          end
        end
      end
    end
    assert_empty given
  end

  def test_the_error_of_an_outer_deadline_is_raised_only
    given = []
    assert_raises(Reactor::DeadlineExceeded) do
      run_plain do
        Reactor.run(on_error: ->(error, _) { given << error }) do
          Reactor.deadline(0.001) { Reactor.group { |group| group.async { sleep }; Fiber.blocking { Reactor.deadline(10) { sleep } } } }
        end
      end
    end
    assert_empty given
  end

  def test_an_error_of_on_error_leaves_the_error_to_run
    child = run_child(<<~RUBY)
      calls = 0
      begin
        Reactor.run(on_error: ->(*) { calls += 1; raise KeyError, "mine" }) do
          2.times { |number| Fiber.schedule { sleep 0; raise IndexError, "fiber \#{number}" } }
        end
      rescue IndexError => error
        puts calls, error.message, error.cause.inspect
      end
    RUBY
    assert_equal "2\nfiber 0\nnil\n", child.out
    assert_equal 2, child.err.scan("mine (KeyError)").size, child.err
    assert_match(/#<Fiber.*terminated with exception .*:\n.*fiber 0 \(IndexError\)/, child.err)
    assert_match(/#<Fiber.*terminated with exception .*:\n.*fiber 1 \(IndexError\)/, child.err)
  end

  def test_on_error_may_end_the_run
    child = run_child(<<~RUBY)
      Reactor.run(on_error: ->(*) { exit 3 }) do
        Fiber.schedule { sleep 0; raise IndexError, "lost?" }
        sleep
      ensure
        puts "ensure"
      end
    RUBY
    assert_equal ["ensure\n", 3], [child.out, child.status.exitstatus]
    assert_equal 1, child.err.scan("lost? (IndexError)").size, child.err
  end

  def test_on_error_may_wait
    log = []
    on_error = lambda do |error, _|
      sleep 0.001
      log << error.message
    end
    value = run_plain do
      Reactor.run(on_error: on_error) do
        2.times { |number| Fiber.schedule { sleep 0; raise IndexError, number.to_s } }
        :value
      end
    end
    assert_equal [:value, %w[0 1]], [value, log.sort]
  end

  { "the fiber is cancelled" => "Fiber.scheduler.cancel_fiber(fiber, nil)", "the fiber is killed" => "fiber.kill",
    "the scheduler is cancelled" => "interrupt = true", "the thread is killed" => "kill = true" }.each do |what, code|
    define_method("test_an_error_is_not_lost_if_#{what.tr(" ", "_")}_while_on_error_waits") do
      child = run_child(<<~RUBY)
        kill = interrupt = false
        begun = Thread::Queue.new
        on_error = ->(*) { begun << true; begin sleep; ensure puts "ensure" end }
        thread = Thread.new do
          Thread.current.report_on_exception = true
          scheduler = Reactor::Scheduler.new(on_error: on_error)
          Fiber.set_scheduler(scheduler)
          fiber = Fiber.schedule { sleep 0; raise IndexError, "kept" }
          Fiber.schedule do
            begun.pop
            #{code}
            Thread.current.kill if kill
            raise Interrupt if interrupt
          end
          begin
            scheduler.run
          ensure
            puts "ended: \#{$!.class}" unless kill
          end
        end
        thread.report_on_exception = true
        thread.join rescue nil
      RUBY
      assert_match(/kept \(IndexError\)/, child.err)
      assert_includes child.out, "ensure\n"
      assert_includes child.out, "ended: #{what.include?("scheduler") ? "Interrupt" : "IndexError"}" unless what.include?("thread")
    end
  end

  def test_a_child_that_a_fiber_forks_has_its_error_itself
    needs_fork
    child = run_child(<<~RUBY)
      Reactor.run(on_error: ->(*) { puts "given" }) do
        Fiber.schedule do
          sleep 0
          pid = fork { raise IndexError, "of the child" }
          puts Process.wait2(pid).last.exitstatus
        end
      end
    RUBY
    assert_equal "1\n", child.out
  end

  def test_what_cannot_be_called_is_refused
    [1, false, Object.new].each do |wrong|
      assert_match(/on_error/, assert_raises(TypeError) { Reactor::Scheduler.new(on_error: wrong) }.message)
    end
    assert_match(/on_error/, assert_raises(TypeError) { Reactor.run(on_error: :log) { nil } }.message)
  end
end

# frozen_string_literal: true

require_relative "helper"
require "reactor/rack"

# Which code sees which fiber storage: the table of docs/promises.md. Each sees a copy of its caller's, and nobody else's.
class TestStorage < ReactorTest
  # Ways to run a block elsewhere. Each is given the block, and returns when it has run.
  WAYS = {
    "Fiber.schedule" => ->(test, seen) { Fiber.schedule { sleep 0; test.call; seen << true } },
    "a task of a group" => ->(test, seen) { Reactor.group { |group| group.async { sleep 0; test.call } }; seen << true },
    "on_ready" => lambda do |test, seen|
      read, write = IO.pipe
      write << "x"
      Fiber.scheduler.on_ready(read) { test.call; read.close; write.close; seen << true }
    end,
    "Reactor.offload" => ->(test, seen) { Reactor.offload { test.call }; seen << true },
    "on_error" => lambda do |test, seen|
      Thread.current.thread_variable_set(:on_error, -> { test.call; seen << true })
      Fiber.schedule { sleep 0; raise IndexError }
    end
  }.freeze

  def with_run(&block)
    run_plain { Reactor.run(on_error: ->(*) { Thread.current.thread_variable_get(:on_error).call }, &block) }
  end

  WAYS.each do |name, way|
    define_method("test_#{name.tr(" .", "__")}_has_a_copy_of_its_callers_storage") do
      inside = outside = nil
      with_run do
        Fiber.schedule do # another fiber's is never seen
          Fiber[:other] = 1
          sleep 0.001
        end
        Fiber[:request] = 7
        seen = Thread::Queue.new
        way.call(-> { inside = [Fiber[:request], Fiber[:other]]; Fiber[:request] = 8; Fiber[:written] = 9 }, seen)
        seen.pop
        outside = [Fiber[:request], Fiber[:written]]
      end
      assert_equal [[7, nil], [7, nil]], [inside, outside]
    end
  end

  def test_each_call_of_a_servers_block_has_a_copy_of_what_start_was_called_with
    seen = []
    run_plain do
      Reactor.run do
        Fiber[:tenant] = "a"
        listener = TCPServer.new("127.0.0.1", 0)
        server = Reactor::Server.new(listener, on_open: ->(_) { seen << Fiber[:tenant] }) do |socket|
          seen << [Fiber[:tenant], Fiber[:user]]
          Fiber[:user] = socket.gets
          socket.write("\n")
        end.start
        Fiber[:tenant] = "b"
        TCPSocket.open("127.0.0.1", listener.local_address.ip_port) { |client| 2.times { client.puts("me"); client.gets } }
        server.stop
      end
    end
    assert_equal ["a", ["a", nil], ["a", nil]], seen.first(3)
  end

  def test_each_request_of_an_application_has_a_copy_of_what_serve_was_called_with
    seen = []
    run_plain do
      Reactor.run do
        Fiber[:tenant] = "a"
        listener = TCPServer.new("127.0.0.1", 0)
        app = lambda do |_|
          seen << [Fiber[:tenant], Fiber[:user]]
          Fiber[:user] = 1
          [200, { "content-length" => "0" }, []]
        end
        server = Reactor::Rack.new(app).serve(listener)
        Fiber[:tenant] = "b"
        TCPSocket.open("127.0.0.1", listener.local_address.ip_port) do |client|
          2.times { client.write("GET / HTTP/1.1\r\nhost: a\r\n\r\n"); nil until client.gets == "\r\n" }
        end
        server.stop
      end
    end
    assert_equal [["a", nil]] * 2, seen
  end

  def test_on_stall_has_no_storage
    seen = Thread::Queue.new
    run_plain do
      Reactor.run(stall: 0.01, on_stall: ->(_) { seen << Fiber.current.storage.to_h.compact }) do
        Fiber[:request] = 7
        Fiber.blocking { sleep 0.005 until seen.size.positive? }
      end
    end
    assert_empty seen.pop
  end

  # The stack of OpenTelemetry's API: an Array of contexts in a fiber-local variable.
  module Context
    class << self
      def current = Thread.current[:__context__]&.last || {}.freeze

      def with_current(context)
        (Thread.current[:__context__] ||= []).push(context)
        yield
      ensure
        Thread.current[:__context__].pop
      end
    end
  end

  # A tracing context for a fiber is passed to it, or kept in fiber storage as a value that never changes.
  def test_a_tracing_context_is_handed_on_and_not_leaked
    seen = {}
    run_plain do
      Reactor.run do
        Context.with_current({ trace: 1 }) do
          context = Context.current
          Fiber[:context] = context
          Fiber.schedule { sleep 0; seen[:local] = Context.current }
          Fiber.schedule { Context.with_current(context) { sleep 0; seen[:handed] = Context.current } }
          Fiber.schedule do
            Context.with_current({ trace: 2 }) { Fiber[:context] = Context.current; sleep 0; seen[:other] = Context.current }
          end
          Fiber.schedule { sleep 0; seen[:inherited] = Fiber[:context] }
          sleep 0.001
          seen[:own] = [Context.current, Fiber[:context]]
        end
        seen[:after] = Context.current
      end
    end
    expected = { local: {}, handed: { trace: 1 }, other: { trace: 2 }, inherited: { trace: 1 }, own: [{ trace: 1 }] * 2, after: {} }
    assert_equal expected, seen
  end
end

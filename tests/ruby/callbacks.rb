# frozen_string_literal: true

require "socket"
require "tempfile"
require "timeout"
require "reactor/testing"
require "reactor/async/selector" if Reactor.const_defined?(:Poller)

# Cells of test_callbacks.rb: a callback of the library raises. A name is "callback|error".
module Callbacks
  class << self
    # Counts ensure clauses: the callback's, and those of the fibers beside it.
    attr_reader :ran

    def raising
      yield
    ensure
      @ran << "callback"
    end

    def converting(name, &block) = Object.new.tap { |object| object.define_singleton_method(name) { |*| block.call } }

    def pipe = IO.pipe.tap { |ends| @kept.concat(ends) }

    # Serves one client, and waits until its connection is closed.
    def served(call, **options, &answer)
      listener = TCPServer.new("127.0.0.1", 0)
      server = Reactor::Server.new(listener, linger: 0, **options, &answer)
      server.start
      client = TCPSocket.new("127.0.0.1", listener.addr[1])
      client.write("x")
      client.read # the connection ends
      sleep 0 # its fiber ends
      [call, server.connections]
    ensure
      client&.close
      server&.stop
    end
  end

  # Where an error surfaces. :caller: the method that takes the callback raises it, as when plain Ruby yields. :fiber: the
  # callback runs in a new fiber. :task: in a task. :worker: on a thread. :nowhere: it is reported.
  ROWS = {
    "Reactor.group" => [:caller, ->(call) { Reactor.group { call.call } }],
    "Reactor.group, a task waits" => [:caller, ->(call) { Reactor.group { |group| group.async { sleep }; call.call } }],
    "Group#async" => [:task, ->(call) { Reactor.group { |group| group.async { sleep 0; call.call } } }],
    "Group#async, at once" => [:task, ->(call) { Reactor.group { |group| group.async { call.call } } }],
    "Group#map" => [:task, ->(call) { Reactor.group { |group| group.map([1, 2]) { |i| i == 2 ? call.call : sleep(0.001) }; nil } }],
    "Group#map, elements" => [:caller, ->(call) { Reactor.group { |group| group.map(Enumerator.new { |y| y << 1; call.call }) { sleep } } }],
    "Group#first" => [:caller, ->(call) { Reactor.group { |group| group.async { 1 }; group.async { sleep }; group.first { call.call } } }],
    "Reactor.offload" => [:worker, ->(call) { Reactor.offload { call.call } }],
    "Watching#on_ready" => [:fiber, ->(call) { from, to = pipe; to.write("x"); Fiber.scheduler.on_ready(from) { call.call }; 3.times { sleep 0.001 } }],
    "Watching#on_ready, timeout" => [:fiber, ->(call) { from, = pipe; Fiber.scheduler.on_ready(from, timeout: 0) { call.call }; 3.times { sleep 0.001 } }],
    "Server.new" => [:fiber, ->(call) { served(call) { call.call } }],
    "Server.new, handshake" => [:fiber, ->(call) { served(call, handshake: ->(_) { call.call }) { nil } }],
    "Inspection#trace" => [:caller, ->(call) { Tempfile.create("t") { |file| Fiber.scheduler.trace(file.path) { call.call } } }],
    "Timeout" => [:caller, ->(call) { Timeout.timeout(600) { call.call } }],
    "_CommonScheduler#timeout_after" => [:caller, ->(call) { Fiber.scheduler.timeout_after(600, KeyError, "late") { call.call } }],
    "_CommonScheduler#fiber" => [:fiber, ->(call) { Fiber.scheduler.fiber { sleep 0; call.call }; 3.times { sleep 0.001 } }],
    "_CommonScheduler#fiber, at once" => [:start, ->(call) { Fiber.scheduler.fiber { call.call } }],
    "copy_stream, readpartial" => [:caller, ->(call) { _, to = pipe; IO.copy_stream(converting(:readpartial, &call), to) }],
    "copy_stream, write" => [:caller, ->(call) { from, to = pipe; to.write("x"); to.close; IO.copy_stream(from, converting(:write, &call)) }],
    "IO.select, to_io" => [:caller, ->(call) { IO.select([converting(:to_io, &call)]) }],
    "Reactor.dump" => [:caller, ->(call) { Reactor.dump(converting(:write, &call)) }],
    "Testing.hold" => [:caller, ->(call) { Reactor::Testing.hold { call.call } }],
    "blocking_operation_wait" => [:worker, ->(call) { Fiber.scheduler.run_by_cost("here", -> { call.call }) }],
    # Called around the run
    "Reactor.run" => [:run, ->(call) { Reactor.run { call.call } }],
    "Reactor.run, later" => [:run, ->(call) { Reactor.run { sleep 0.001; call.call } }],
    "Testing.virtual_time" => [:run, ->(call) { Reactor::Testing.virtual_time { sleep 1; call.call } }],
    "Scheduler.new, on_stall" => [:nowhere, ->(call) { stalling(on_stall: ->(_) { call.call }) }],
    "Scheduler.new, the default reporter" => [:nowhere, lambda do |call|
      $stderr = converting(:write, &call)
      stalling
    ensure
      $stderr = STDERR
    end],
    "a reported error" => [:reporter, lambda do |call|
      Thread.current.report_on_exception = true
      $stderr = converting(:write, &call)
      Reactor.run { Fiber.schedule { sleep 0; raise IndexError, "reported" }; sleep 0.001; :value }
    ensure
      $stderr = STDERR
    end]
  }.freeze

  # How a callback fails.
  ERRORS = {
    "StandardError" => -> { raise KeyError, "the callback" },
    "ClosedQueueError" => -> { raise ClosedQueueError, "the callback" }, # a StopIteration, which Kernel#loop rescues
    "FiberError" => -> { raise FiberError, "the callback" }, # which a watcher rescues where it makes its fiber
    "ScriptError" => -> { raise NotImplementedError, "the callback" },
    "SystemExit" => -> { exit 3 },
    "an Exception" => -> { raise Exception, "the callback" }, # rubocop:disable Lint/RaiseException
    "throw" => -> { throw :out, :thrown },
    "Thread#kill" => -> { Thread.current.kill },
    "Fiber#kill" => -> { Fiber.current.kill }
  }.freeze

  class << self
    # Runs a scheduler whose loop is held twice, each time until that is reported or nothing reports any more.
    def stalling(**options)
      scheduler = nil
      value = Reactor.run(stall: 0.001, **options) do
        scheduler = Fiber.scheduler
        2.times do |i|
          reported = @ran.size
          Fiber.blocking { sleep 0.001 until @ran.size > reported || (i.positive? && Thread.list.none? { |thread| thread.name == "reactor stalls" }) }
          sleep 0 # the loop turns
        end
        :value
      end
      [value, scheduler.closed?]
    end

    def cell(name)
      row, error = name.split("|")
      @ran, @kept = [], []
      where, use = ROWS.fetch(row)
      call = -> { raising(&ERRORS.fetch(error)) }
      Thread.report_on_exception = false
      descriptors, threads = Dir.children("/proc/self/fd").size, Thread.list.size
      seen = {}
      # On a thread, because some errors end it.
      thread = Thread.new do
        seen["comes"] = "ends the thread"
        seen["comes"] = outcome { catch(:out) { %i[run nowhere reporter].include?(where) ? use.call(call) : beside(use, call, error, seen) } }
      end
      seen["joined"] = outcome { thread.join(30) ? :joined : raise("the thread hangs: #{thread.backtrace&.first(4)}") }
      @kept.each(&:close)
      left = nil
      TimeLimit.new(2).until do
        GC.start
        left = [Dir.children("/proc/self/fd").size - descriptors, Thread.list.count { |each| !each.name.to_s.include?("Timeout") } - threads]
        left.none?(&:positive?) || (sleep 0.001; nil)
      end
      seen["left"] = left if left.any?(&:positive?)
      seen["ensured"] = @ran.tally
      seen["another run"] = outcome { Reactor.run { sleep 0.001; :ok } }
      seen
    end

    private

    # Runs with another fiber beside it. Returns what surfaces at the caller, and what at the end of the run.
    def beside(use, call, error, seen)
      scheduler = nil
      seen["caller"] = "never returns"
      Reactor.run do
        scheduler = Fiber.scheduler
        go = Thread::Queue.new
        Fiber.schedule do
          go.pop
        ensure
          sleep 0.001
          @ran << "beside"
        end
        begin
          seen["caller"] = outcome { catch(:out) { use.call(call) } }
          sleep 0.001 # it waits after the callback
          go << true
        ensure
          go << true if error == "Fiber#kill" # which may have ended this fiber alone
        end
        :value
      end
    ensure
      seen["scheduler"] = [scheduler.closed?, scheduler.live, scheduler.watchers.size]
    end

    def outcome
      value = yield
      value.is_a?(Symbol) || value.is_a?(Array) ? value.inspect : "returns"
    rescue Exception => error # rubocop:disable Lint/RescueException -- compared
      "#{error.class}#{" #{error.status}" if error.is_a?(SystemExit)}#{": #{error.message[0, 90]}" unless error.message.include?("callback") || error.is_a?(SystemExit)}"
    end
  end
end

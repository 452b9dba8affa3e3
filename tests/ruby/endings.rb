# frozen_string_literal: true

require "socket"
require "timeout"

# Cells of test_endings.rb: in some place, a scheduler with fibers in some state ends in some way. A name is "place|state|way".
# Each cell prints what happens to it.
module Endings
  KEPT = []
  Stopped = Class.new(Exception) # rubocop:disable Lint/InheritException -- ends the run, whichever fiber it is raised in

  class << self
    def say(text) = STDOUT.syswrite("#{text}\n")

    # A fiber that does this, and has an ensure clause that waits.
    def fiber(name)
      Fiber.schedule do
        completed = false
        yield
        completed = true
      ensure
        sleep 0.001
        say "#{name} #{completed ? "completed" : "cancelled"}"
      end
    end

    def pipe = IO.pipe.tap { |ends| KEPT << ends }
  end

  # Starts fibers, and returns a lambda that lets them continue.
  STATES = {
    "nothing" => -> { -> {} },
    "a waiting fiber" => -> { queue = Thread::Queue.new; fiber("queue") { queue.pop }; -> { queue << 1 } },
    "an Enumerator that waits" => -> { queue = Thread::Queue.new; fiber("enumerator") { Enumerator.new { |y| y << queue.pop }.next }; -> { queue << 1 } },
    "a timeout" => -> { queue = Thread::Queue.new; fiber("timeout") { Timeout.timeout(600) { queue.pop } }; -> { queue << 1 } },
    "a read" => -> { from, to = pipe; fiber("read") { from.readpartial(1) }; -> { to.write("x") } },
    "a watched loop" => -> { -> {} },
    "an idle worker" => -> { Reactor.offload { 1 }; -> {} },
    "a busy worker" => -> { queue = Thread::Queue.new; fiber("offload") { Reactor.offload { queue.pop } }; -> { queue << 1 } },
    "a lookup" => -> { fiber("lookup") { IPSocket.getaddress("localhost") }; -> {} },
    "a child" => lambda do
      from, to = pipe
      pid = fork { to.close; from.read(1); exit!(0) }
      fiber("child") { Process.wait(pid) }
      -> { to.write("x") }
    end,
    "a watcher" => lambda do
      from, to = pipe
      Fiber.scheduler.on_ready(from) { say "watcher ran" }
      -> { to.write("x") }
    end,
    "a group" => lambda do
      queue = Thread::Queue.new
      fiber("group") { Reactor.group { |group| group.async { queue.pop }; group.wait } }
      -> { queue << 1 }
    end,
    "a thread" => -> { queue = Thread::Queue.new; fiber("thread") { Thread.new { queue.pop }.tap { |thread| KEPT << thread }.value }; -> { queue << 1 } }
  }.freeze

  # Where the scheduler runs.
  PLACES = {
    "main" => ->(&body) { body.call },
    "a thread" => ->(&body) { Thread.new(&body).tap { |thread| thread.report_on_exception = false }.value },
    "a fiber" => ->(&body) { Fiber.new(&body).resume },
    "a blocking fiber" => ->(&body) { Fiber.new(blocking: true, &body).resume },
    "an Enumerator" => ->(&body) { Enumerator.new { |y| y << body.call }.next },
    "a child" => ->(&body) { child(&body) },
    "a child of a run" => ->(&body) { Reactor.run { child(&body) } },
    "a thread of a run" => ->(&body) { Reactor.run { Thread.new(&body).tap { |thread| thread.report_on_exception = false }.value } },
    "at_exit" => ->(&body) { at_exit { body.call } && :later }
  }.freeze

  # How it ends. Each is given a lambda that starts the fibers.
  WAYS = {
    "run" => ->(state) { begun { state.call.call; :value } },
    "an error" => ->(state) { begun { state.call; raise KeyError } },
    "an error of a fiber" => ->(state) { begun { go = state.call; Fiber.schedule { sleep 0; raise KeyError }; go.call; :value } },
    "exit" => ->(state) { begun { state.call; exit 3 } },
    "exit of a fiber" => ->(state) { begun { state.call; Fiber.schedule { sleep 0; exit 3 }; sleep } },
    "exit!" => ->(state) { begun { state.call; exit! 4 } },
    "abort" => ->(state) { begun { state.call; abort } },
    "exec" => ->(state) { begun { state.call; exec("exit 5") } },
    "TERM" => ->(state) { begun { state.call; Process.kill(:TERM, Process.pid); sleep } },
    "INT" => ->(state) { begun { state.call; Process.kill(:INT, Process.pid); sleep } },
    "Thread#kill" => ->(state) { begun { state.call; Thread.current.kill } },
    "Thread#raise" => lambda do |state|
      owner = Thread.current
      begun { state.call; Thread.new { Thread.pass until owner.stop?; owner.raise(Stopped) }; sleep }
    end,
    "set_scheduler(nil)" => ->(state) { set { state.call.call }; Fiber.set_scheduler(nil) || :value },
    "close" => ->(state) { set { state.call.call }.close || :value },
    "another scheduler" => ->(state) { set { state.call.call }; set { sleep 0 }; Fiber.set_scheduler(nil) || :value },
    "another run" => ->(state) { begun { state.call.call }; begun { sleep 0; :value } },
    "the end of the thread" => ->(state) { set { state.call.call } && :value }
  }.freeze

  class << self
    attr_writer :options

    def begun(&) = Reactor.run(**@options, &)

    def set(&block)
      scheduler = Reactor::Scheduler.new(**@options)
      Fiber.set_scheduler(scheduler)
      Fiber.schedule(&block)
      scheduler
    end

    # A child that ends like a program. Its exit status becomes that of this process.
    def child
      pid = fork { trap("INT", "DEFAULT"); yield }
      _, status = Process.wait2(pid)
      say "child #{status.exited? ? "exit #{status.exitstatus}" : "signal #{Signal.signame(status.termsig)}"}"
      :of_child
    end

    def cell(name)
      place, state, way = name.split("|")
      trap("INT", "DEFAULT")
      self.options = state == "a watched loop" ? { stall: 600 } : {}
      start = -> { STATES.fetch(state).call }
      PLACES.fetch(place).call { tell(way, start) }
      :ends_by_itself
    end

    private

    def tell(way, start)
      Thread.current.report_on_exception = false
      descriptors = Dir.children("/proc/self/fd").size
      threads = Thread.list.size
      value = WAYS.fetch(way).call(start)
      say "value #{value}"
    rescue Exception => error # rubocop:disable Lint/RescueException -- SystemExit
      say "raises #{error.class}"
      raise error if error.is_a?(SystemExit) || error.is_a?(SignalException)
    ensure
      unless way == "the end of the thread"
        say "has a scheduler" if Fiber.scheduler
        KEPT.flatten.each { |kept| kept.is_a?(Thread) ? kept.kill.join : kept.close }
        left = nil
        # A thread of the pool may hold one until the thread has ended.
        TimeLimit.new(2).until do
          left = [Dir.children("/proc/self/fd").size - descriptors, Thread.list.size - threads]
          left.none?(&:positive?) || (sleep 0.001; nil)
        end
        say "left #{left.first} descriptors, #{left.last} threads" if left.any?(&:positive?)
      end
    end
  end
end

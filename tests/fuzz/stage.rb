# frozen_string_literal: true

require "io/console"
require "monitor"
require "pty"
require "socket"
require "timeout"
require "tmpdir"
require_relative "leftovers"
require_relative "places"
require_relative "props"

module Fuzz
  # The conductor raises it in a task.
  class Boom < StandardError; end

  # A task raises it, or Timeout.timeout does.
  class Own < StandardError; end

  # Where a program runs: its tasks are threads without a scheduler, or fibers of one scheduler. Each task writes a log. A
  # conductor ends the waits of the tasks, one by one: each time it waits until the task is asleep at that place.
  class Stage
    include Props
    include Places

    POLL = 0.0005 # seconds between two looks at a task

    # What a task has done so far, and where it is: the number of its last wait, and the thread and fiber that are in it.
    class Task
      attr_reader :name, :log, :site, :thread, :fiber, :body
      attr_accessor :over, :killed

      def initialize(stage, name)
        @stage = stage
        @name = name
        @log = []
        @site = 0
        @inside = false
      end

      # Runs the block as the wait with this number, and logs its value, the class of its error, or that it was cut.
      # @param least [Float] seconds that it lasts unless it is ended from outside
      # @param share [Integer, nil] the number of a wait that several tasks have in common: their values are compared as a set
      def wait(site, least: 0, share: nil)
        outcome = "cut"
        @thread = Thread.current
        @fiber = Fiber.current
        @site = site
        @inside = true
        start = Fuzz.now
        value = yield
        outcome = Fuzz.now - start < least - 0.001 ? "early" : Fuzz.text(value)
        value
      rescue Exception => error # rubocop:disable Lint/RescueException -- the log has every outcome
        outcome = error.class.name unless kill?(error)
        raise
      ensure
        @inside = false
        share ? @stage.shares[share] << outcome : note("#{site}: #{outcome}")
      end

      # @param what [String, Exception] a kill goes on
      def note(what)
        raise what if kill?(what)

        @log << (what.is_a?(Exception) ? what.class.name : what)
      end

      # Runs the block, in which no conductor takes part, and logs its value or the class of its error.
      def act
        note(Fuzz.text(yield))
      rescue StandardError => error
        note(error)
      end

      # Runs the block in a forked child, whose log becomes a part of this one.
      def fork(&block)
        reader, writer = IO.pipe
        pid = Process.fork { child(writer, &block) }
        writer.close
        _, status = Process.wait2(pid)
        note("child: #{reader.read} #{status.exitstatus.inspect} #{status.termsig.inspect}")
      ensure
        [reader, writer].each { |io| io.close unless io.closed? }
      end

      # @return [Boolean, nil] whether the task has reached this wait and sleeps in it; nil: it never will
      def asleep_at?(site)
        return if over || @site > site || (@site == site && !@inside)

        @site == site && @stage.asleep?(@thread, @fiber)
      end

      def live
        @body = [Thread.current, Fiber.current]
        yield self
        note("returned")
      rescue Exception => error # rubocop:disable Lint/RescueException -- the log has every outcome
        note("died of #{error.class}") unless kill?(error)
      ensure
        self.over = true
      end

      private

      # Of a fiber that is killed while it is inside another one, an Enumerator's for example, the VM makes the kill a
      # RuntimeError without a message in the inner one. Plain fibers show it on every Ruby. A thread's kill is no exception, and a
      # scheduler that ends cancels its fibers instead.
      def kill?(error) = killed && ((error.instance_of?(RuntimeError) && error.message.empty?) || error.class.name == "Reactor::Cancelled")

      def child(writer)
        @log = []
        live { yield }
        writer.write(@log.join(", "))
      ensure
        Process.exit!(0)
      end
    end

    attr_reader :scheduler, :shares

    # @param backend [String, nil] nil: threads
    def initialize(backend)
      @backend = backend
      @tasks = {}
      @threads = []
      @shares = Hash.new { |shares, number| shares[number] = [] }
      @conductor = Task.new(self, :conductor)
      @errors = []
      @handled = 0
      @orders = Thread::Queue.new
      props_begin
    end

    # @param program [#call] is given the stage: makes tasks, and tells what the conductor does
    # @param ending [String] "finish": every task comes to its end; "kill": the thread of the tasks that are left is killed
    # @return [Hash] the outcome; it can be written as JSON
    def run(program, ending: "finish")
      leftovers = Leftovers.new
      ending == "kill" ? Thread.new { loop_of(program) }.then { |thread| await_kill(thread) } : loop_of(program)
      ios = close_props
      { "logs" => log_of_all, "shares" => @shares.transform_keys(&:to_s).transform_values(&:sort), "left" => leftovers.found(ios) }
    end

    # @return [Hash] the logs so far, of a program that hangs
    def partly = { "hang" => true, "logs" => log_of_all }

    def task(name, &block)
      task = @tasks[name] = Task.new(self, name)
      start { task.live(&block) }
    end

    # What ends the waits of the tasks: on a thread of its own, or as one more fiber.
    def conduct(on:, &block)
      work = lambda do
        @conductor.live(&block)
      ensure
        sleep POLL until @tasks.each_value.all?(&:over) || !@home.alive?
        release_all
        @orders.close
      end
      @conducted = true
      on == :thread ? @threads << Thread.new(&work) : start(&work)
    end

    # A fiber that does what the conductor, which is on another thread, can do on the thread of the fibers only.
    def take_orders
      return unless @scheduler

      start do
        while (work, done = @orders.pop)
          begin
            work.call
          ensure
            done << true
          end
        end
      end
    end

    # Runs the block when each of these tasks sleeps in the wait with this number, or never will; not if none will.
    def at(after: 0, from: :here, **sites)
      return unless sites.map { |name, site| until_asleep(@tasks.fetch(name), site) }.any?

      sleep after if after.positive?
      from == :thread ? Thread.new { yield }.then { |thread| thread.report_on_exception = false; thread.join } : yield
    rescue StandardError => error
      @conductor.note("#{sites.values.first}: #{error.class}")
    end

    def raise_in(name) = in_loop { target(name).raise(Boom) }

    def kill(name)
      @tasks.fetch(name).killed = true
      in_loop { target(name).kill }
    end

    # Kills with their threads the tasks that sleep in these waits. Every other task ends first.
    def kill_all(**sites)
      @tasks.each { |name, task| sites[name] ? until_asleep(task, sites[name]) : until_over(task) }
      @killing = true
    end

    def asleep?(thread, fiber)
      return thread.stop? && in_kernel?(thread) unless @scheduler && thread.equal?(@home)

      Reactor::FiberStatus.rows(@scheduler).any? { |row| row.fiber.equal?(fiber) && row.state == :waiting }
    end

    # What a signal does. The handler waits.
    def on_signal(&block)
      @handler_before = Signal.trap("USR1") do
        @in_handler = true
        @gate ? @gate.pop : block.call
      rescue Exception => error # rubocop:disable Lint/RescueException -- the log has every outcome
        @conductor.note("handler: #{error.class}")
      ensure
        @handled += 1
      end
    end

    # Sends the signal, and returns when the handler has ended.
    def signal
      before = @handled
      Process.kill(:USR1, Process.pid)
      sleep POLL until @handled > before
    end

    # Runs the block while the handler of a signal waits.
    def signal_while
      before = @handled
      @in_handler = false
      @gate = Thread::Queue.new
      Process.kill(:USR1, Process.pid)
      sleep POLL until @in_handler
      yield
    ensure
      @gate << true
      sleep POLL until @handled > before
      @gate = nil
    end

    private

    # A thread has the status of one that sleeps before it has made its system call. What ends the wait must not come first: a
    # file that reopen puts in the place of a socket would be read from.
    def in_kernel?(thread)
      stat = Fiber.blocking { File.read("/proc/self/task/#{thread.native_thread_id}/stat") }
      stat[/.*\) (\S)/, 1] == "S"
    rescue SystemCallError
      true # the thread has ended, or this system has no such file
    end

    def loop_of(program)
      @home = Thread.current
      @home.report_on_exception = false
      @home.priority = 0 # a program that is shrunk may have set these in it
      @home.name = nil
      @home.thread_variable_set(:slot, nil)
      Fiber.set_scheduler(@scheduler = Reactor::Scheduler.new(backend: @backend)) if @backend
      program.call(self)
      conduct(on: :fiber) { nil } unless @conducted
      @scheduler&.run
      @threads.each(&:join)
      Fiber.set_scheduler(nil) if @scheduler
    rescue Exception => error # rubocop:disable Lint/RescueException -- the log has every outcome
      @errors << error.class.name
    ensure
      Signal.trap("USR1", @handler_before) if @handler_before
    end

    # The conductor kills the loop of the fibers, or each thread.
    def await_kill(thread)
      sleep POLL until @killing || !thread.alive?
      @tasks.each_value { |task| task.killed = true }
      @scheduler ? thread.kill : @tasks.each_value { |task| task.body.first.kill }
      thread.join
    end

    def start(&work)
      return Fiber.schedule(&work) if @scheduler

      thread = Thread.new(&work)
      thread.report_on_exception = false
      @threads << thread
    end

    def until_asleep(task, site)
      sleep POLL while (answer = task.asleep_at?(site)) == false
      answer
    end

    def until_over(task) = (sleep POLL until task.over)

    # A fiber can be raised in or killed by its own thread only.
    def in_loop(&work)
      return work.call if @scheduler.nil? || Thread.current.equal?(@home)

      @orders << [work, done = Thread::Queue.new]
      done.pop
    end

    # @return [Thread, Fiber] what runs the task at the moment
    def target(name)
      task = @tasks.fetch(name)
      @scheduler && task.thread.equal?(@home) ? task.body.last : task.thread
    end

    def log_of_all
      { "loop" => @errors, "conductor" => @conductor.log }.merge(@tasks.to_h { |name, task| [name.to_s, task.log] })
    end
  end

  class << self
    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # @return [String] the value as a log has it
    def text(value)
      case value
      when String then value.bytesize > 100 ? "#{value.bytesize} bytes, CRC #{Zlib.crc32(value)}" : value.b.inspect
      when nil, true, false, Symbol, Numeric then value.inspect
      when Array then "[#{value.map { |item| text(item) }.join(", ")}]"
      else value.class.name
      end
    end
  end
end

# frozen_string_literal: true

require_relative "world"
require_relative "../ruby/time_limit"

module Wild
  # Runs calls, one by one, each in a fiber of one scheduler, and ends what they leave behind. It is itself a fiber of it.
  class Conductor
    # The call did something that it must not.
    class Failure < StandardError
    end

    # Turns of the loop after which a call waits for what does not come by itself.
    TURNS = 3
    # Seconds of the turns after them, where a thread does the work. Few: on a busy machine each sleep costs the process its turn.
    PAUSES = [0.0005, 0.001, 0.002, 0.004, 0.008, 0.016].freeze
    SLOW = /file|null|offload|lookup|process|run_|Addrinfo|Socket|Thread|fsync|fresh|flock|large|File|IO\.copy|IO\.allocate|\bio\.[a-z]|poller|prefetch|sync/
    # Seconds a fiber has to end after it was killed.
    LIMIT = 20
    # Objects of a kind that may be left: a word on the stack may look like a reference to one.
    SLACK = 10

    # Runs the block with a conductor in a fiber of a scheduler of its own.
    def self.alone
      result = error = nil
      thread = Thread.new do
        Thread.current.report_on_exception = false
        Fiber.set_scheduler(scheduler = Reactor::Scheduler.new)
        root = Fiber.current
        Fiber.schedule do
          result = yield new(scheduler, root)
        rescue Exception => error # rubocop:disable Lint/RescueException -- raised again below
          nil
        end
        begin
          scheduler.close
        rescue Exception => e # rubocop:disable Lint/RescueException
          # What a fiber of a call has raised after its first wait comes when the conductor has ended.
          error ||= Failure.new("the loop was ended by #{e.full_message(highlight: false)}") unless result
        end
      end
      thread.join
      raise error if error

      result
    end

    # @param root [Fiber] the thread's own, which is not to be killed
    def initialize(scheduler, root)
      @scheduler = scheduler
      @root = root
      @fiber = Fiber.current
      @calls = 0
      probe
      @before = left
    end

    # @param text [String] a call
    # @return [String] its outcome
    def call(text)
      @calls += 1
      world = World.new(@scheduler)
      outcome = nil
      fiber = Fiber.schedule { outcome = Outcome.of { world.run(text) } }
      pauses = [*[0] * TURNS, *(PAUSES if text.match?(SLOW))]
      sleep(pauses.shift) while fiber.alive? && pauses.any?
      finish(text, fiber)
      world.close
      outcome || "parked"
    rescue FiberError => e
      raise Failure, "the conductor could not go on: #{e.full_message(highlight: false)}"
    end

    # Whether the scheduler works as before, and nothing is left.
    def check
      finish("the calls before")
      probe
      limit = now + LIMIT
      until (surplus = surplus(left)).empty?
        raise Failure, "left behind: #{surplus}" if now > limit

        GC.start
        sleep 0.001
      end
    end

    private

    # Ends every fiber and every watcher that the call has left.
    def finish(text, own = nil)
      @scheduler.watchers.each(&:cancel)
      limit = nil
      while @scheduler.live > 1
        end_fibers(own)
        sleep(limit ? 0.0005 : 0)
        limit ||= TimeLimit.new(LIMIT)
        raise Failure, "fibers that do not end: #{@scheduler.dump} after #{text}" if limit.over?
      end
    end

    # A fiber that the call has started is killed, because what is raised in it would go to the thread.
    def end_fibers(own)
      @scheduler.fibers.each do |status|
        next if [@fiber, @root].any? { |fiber| status.fiber.equal?(fiber) } || !status.fiber.alive?

        status.fiber.equal?(own) && @calls.odd? ? own.raise(Over) : status.fiber.kill
      rescue FiberError, Over
        nil # it is about to run
      end
    end

    def probe
      r, w = IO.pipe
      got = nil
      reader = Fiber.schedule { got = r.readpartial(9) }
      w << "sound"
      queue = Thread::Queue.new
      popper = Fiber.schedule { queue.pop == 1 or raise Failure, "a wrong value in the queue" }
      queue << 1
      started = now
      sleep 0.0001
      raise Failure, "a sleep ended early" if now - started < 0.0001

      limit = started + LIMIT
      while reader.alive? || popper.alive?
        sleep 0.0001
        raise Failure, "a pipe or a queue wakes no fiber:\n#{@scheduler.dump}" if now > limit
      end
      raise Failure, "the pipe gave #{got.inspect}" unless got == "sound"

      File.write("probe", "file")
      raise Failure, "the file has other bytes" unless File.read("probe") == "file" && r.wait_readable(0).nil?
    ensure
      [r, w].each { |io| io&.close }
    end

    # Descriptors, by name where they have one, and threads.
    def left
      return threads + (3..World::HIGH).filter_map { |number| "descriptor" if IO.for_fd(number, autoclose: false) rescue nil } if Platform::WINDOWS

      names = Dir.children("/proc/self/fd").filter_map { |fd| File.readlink("/proc/self/fd/#{fd}").sub(/\d+/, "") rescue nil }
      names.reject { |name| name.end_with?("/fd") }.sort + threads
    end

    # What there is more of than at the beginning, beyond what a word on a stack may keep from being collected.
    def surplus(names)
      names.tally.filter_map { |name, count| "#{count} of #{name}" if count > @before.count(name) + SLACK }
    end

    # Workers stay, Timeout's thread too.
    def threads
      (Thread.list - [Thread.main, Thread.current]).reject { |thread| thread.name.to_s.match?(/reactor|Timeout/) }.map { "thread" }
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end

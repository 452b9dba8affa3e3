# frozen_string_literal: true

require "timeout"

# Fibers in every kind of wait, a fiber and threads that interrupt them, and a model of the outcomes that each wait may
# have. Each actor has its own random generator, so a seed fixes its decisions independently of the timing.
module Interleaving
  # Fiber#raise raises it in the wait with this number.
  class TargetedError < StandardError
    attr_reader :step

    def initialize(step)
      @step = step
      super("aimed at #{step}")
    end
  end

  # Timeout.timeout raises it; the message is the number of the block.
  class Expired < StandardError; end

  def self.now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  # A pipe to one actor, with the number of bytes written and read. The nth byte is n.
  class Channel
    attr_reader :reader

    def initialize
      @reader, @writer = IO.pipe
      @broken = false
      @sent = @got = 0
    end

    def send
      @sent += 1
      @sent -= 1 unless @writer.write_nonblock([(@sent - 1) & 255].pack("C"), exception: false) == 1
    rescue IOError, Errno::EPIPE
      nil # the actor has given it up
    end

    # Whether these are the next bytes of the sequence.
    def take(bytes)
      expected = Array.new(bytes.bytesize) { |i| (@got + i) & 255 }
      @got += bytes.bytesize
      bytes.bytes == expected && @got <= @sent
    end

    # The flag is set first, because a fiber that waits for the reader may run before IO#close returns.
    def close_reader
      @broken = true
      @reader.close
    end

    def broken? = @broken

    def close = [@reader, @writer].each { |io| io.close unless io.closed? }
  end

  # A fiber that waits repeatedly and checks the outcome of each wait.
  class Actor
    # Odd during a wait, even between two waits.
    attr_reader :step, :kind, :fiber, :channel

    def initialize(world, number)
      @world = world
      @random = Random.new(world.seed + number)
      @queue = Queue.new
      @channel = Channel.new
      @step = @pushed = @popped = @blocks = 0
      @kind = nil
    end

    def start
      @fiber = Fiber.schedule do
        live until @world.over?
      rescue Expired, TargetedError => error
        violated "#{error.class} (#{error.message}) outside of its wait, at #{@step}"
      ensure
        @world.left(self)
        @channel.close
      end
    end

    def push
      @queue << @pushed
      @pushed += 1
    end

    def waiting? = @step.odd?

    # The number of pushed items that were neither popped nor are still in the queue.
    def lost = @pushed - @popped - @queue.size

    private

    WAYS = %i[timed_sleep endless_sleep pop read wait_readable io_select lock enumerate].freeze

    def live
      return once if @random.rand(3).positive?

      limit = span
      block = "block #{@blocks += 1}"
      start = Interleaving.now
      begin
        Timeout.timeout(limit, Expired, block) { once }
      rescue Expired => error
        violated "#{error.message} expired in #{block}" unless error.message == block
        violated "#{block} expired after #{Interleaving.now - start} s instead of #{limit}" if Interleaving.now - start < limit
        @world.count(:timeouts)
      end
    end

    def once = send(WAYS[@random.rand(WAYS.size)])

    def span = @random.rand(4).zero? ? 0.0 : @random.rand * 0.004

    # Runs the block as one wait. An error raised in it must belong to this wait.
    def wait(kind)
      @kind = kind
      mine = @step += 1
      @world.count(:waits)
      yield mine
    rescue TargetedError => error
      violated "raise for #{error.step} arrived in #{mine}" unless error.step == mine
    rescue IOError => error
      violated "#{kind}: #{error.message}, but its channel was not closed" unless @channel.broken?
      @channel.close
      @channel = Channel.new
    ensure
      @step += 1
    end

    # A wait that must not end before its time, unless an unblock ended it.
    def timed(kind, least)
      wait(kind) do |mine|
        start = Interleaving.now
        yield
        took = Interleaving.now - start
        @world.ended_early(self, mine, kind, least, took) if took < least
      end
    end

    def timed_sleep = span.then { |seconds| timed(:sleep, seconds) { sleep(seconds) } }

    # Ends by an unblock only.
    def endless_sleep = timed(:sleep, Float::INFINITY) { sleep }

    def pop
      limit = [nil, span][@random.rand(2)]
      wait(:pop) do
        start = Interleaving.now
        item = @queue.pop(timeout: limit)
        next popped(item) if item

        violated "pop gave up after #{Interleaving.now - start} s of #{limit.inspect}" if limit.nil? || Interleaving.now - start < limit
      end
    end

    def popped(item)
      violated "popped #{item} instead of #{@popped}" unless item == @popped
      @popped += 1
    end

    def read
      wait(:io) { taken(@channel.reader.readpartial(1 + @random.rand(5))) }
    end

    def taken(bytes)
      violated "wrong bytes" unless @channel.take(bytes)
    end

    def wait_readable
      limit = [nil, span][@random.rand(2)]
      wait(:io) { ready(limit) { @channel.reader.wait_readable(limit) } }
    end

    def io_select
      limit = [nil, span][@random.rand(2)]
      wait(:io) do
        ready(limit) { IO.select([@world.silent, @channel.reader], nil, nil, limit)&.then { |found, *| found == [@channel.reader] || violated("select found #{found}") } }
      end
    end

    # If the wait reports readiness, a byte must be there, because only this fiber reads. A timeout must not be early.
    def ready(limit)
      start = Interleaving.now
      if yield
        bytes = @channel.reader.read_nonblock(1, exception: false)
        bytes == :wait_readable ? violated("ready, but nothing is there") : taken(bytes)
      elsif limit.nil? || Interleaving.now - start < limit
        violated "not ready after #{Interleaving.now - start} s of #{limit.inspect}"
      end
    end

    def lock
      mutex = @world.mutexes[@random.rand(@world.mutexes.size)]
      wait(:mutex) { mutex.lock }
      return unless mutex.owned? # an error was raised in the fiber

      begin
        violated "two fibers hold one mutex" unless (@world.holders[mutex] += 1) == 1
        timed_sleep
      ensure
        @world.holders[mutex] -= 1
        mutex.unlock
      end
    end

    def enumerate
      seconds = span
      slow = Enumerator.new { |yielder| sleep(seconds); yielder << :item }
      wait(:enumerator) do
        start = Interleaving.now
        violated "an Enumerator returned another item" unless slow.next == :item
        violated "a sleep in an Enumerator ended early" if Interleaving.now - start < seconds
      end
    end

    def violated(what) = @world.violated("actor #{@world.actors.index(self)}: #{what}")
  end

  # The actors, the fiber and the threads that interrupt them, and the list of violations.
  class World
    attr_reader :seed, :actors, :silent, :mutexes, :holders, :violations, :counts

    # Runs for `seconds`, and until each count of `enough` is reached: see over?.
    def initialize(seed, seconds, enough, actors: 20)
      @seed = seed
      @end = Interleaving.now + seconds
      @enough = enough
      @silent, @silent_writer = IO.pipe
      @mutexes = Array.new(3) { Mutex.new }
      @holders = Hash.new(0).compare_by_identity
      @violations = []
      @counts = Hash.new(0)
      @unblocks = Hash.new { |hash, actor| hash[actor] = [] }.compare_by_identity
      @early = []
      @actors = Array.new(actors) { |number| Actor.new(self, number) }
      @alive = @actors.dup
    end

    # Runs the actors on the current thread, which has a scheduler; returns when all of them have ended.
    def run
      scheduler = Fiber.scheduler
      @actors.each(&:start)
      Fiber.schedule { disturb(Random.new(@seed - 1), scheduler) }
      threads = Array.new(2) { |half| Thread.new { produce(Random.new(@seed - 2 - half), half, scheduler) } }
      scheduler.run
      threads.each(&:join)
      settle
    ensure
      [@silent, @silent_writer].each(&:close)
    end

    def over? = Interleaving.now > @end && @enough.all? { |what, least| @counts[what] >= least }
    def left(actor) = @alive.delete(actor)
    def count(what) = @counts[what] += 1
    def violated(what) = @violations << what
    def ended_early(actor, step, kind, least, took) = @early << [actor, step, kind, least, took]

    private

    # On a thread without a scheduler: writes to one half of the actors, and unblocks them at random.
    def produce(random, half, scheduler)
      until @alive.empty?
        actor = @actors[random.rand(@actors.size / 2) * 2 + half]
        case random.rand(4)
        when 0 then actor.push
        when 1 then actor.channel.send
        when 2 then unblock(actor, scheduler)
        else random.rand(20).zero? && !over? ? actor.channel.close_reader : sleep(random.rand * 0.001)
        end
      end
    end

    # In a fiber of the same scheduler. No actor runs meanwhile, so the wait it interrupts is known exactly.
    def disturb(random, scheduler)
      until @alive.empty?
        actor = @actors[random.rand(@actors.size)]
        next sleep(random.rand * 0.001) unless actor.waiting? && actor.fiber.alive?

        case random.rand(4)
        when 0 then wake(actor, scheduler)
        when 1 then raise_in(actor)
        when 2 then random.rand(10).zero? && !over? ? actor.channel.close_reader : nil
        end
        sleep(random.rand * 0.0005)
      end
    end

    # A sleeping fiber is woken by the first unblock, after the fibers queued before it.
    def wake(actor, scheduler)
      step, kind = actor.step, actor.kind
      unblock(actor, scheduler)
      return unless kind == :sleep

      2.times { sleep 0 }
      violated "an unblock did not end wait #{step}" if actor.step == step
    end

    def raise_in(actor)
      count(:raises)
      step = actor.step
      actor.fiber.raise(TargetedError.new(step))
      violated "a raise did not end wait #{step}" if actor.step == step
    end

    # May end the current wait of the actor only.
    def unblock(actor, scheduler)
      before = actor.step
      scheduler.unblock(nil, actor.fiber)
      @unblocks[actor] << (before..actor.step)
      count(:unblocks)
    end

    def settle
      @early.each do |actor, step, kind, least, took|
        next if @unblocks[actor].any? { |steps| steps.cover?(step) }

        violated "#{kind} #{step} of actor #{@actors.index(actor)} ended after #{took} s instead of #{least}"
      end
      @actors.each_with_index { |actor, i| violated "actor #{i} lost #{actor.lost} items" unless actor.lost.zero? }
    end
  end
end

# frozen_string_literal: true

require "reactor"
require_relative "memory"
require_relative "../fuzz/leftovers"
require_relative "workloads"

# Counts of one thread's work and the state that it left. Each thread has its own, so nothing is shared.
class Account
  attr_accessor :bytes, :sent, :received
  attr_reader :rounds, :last_round, :left

  def self.now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def initialize
    @bytes = @sent = @received = 0
    @rounds = Hash.new(0)
    @last_round = {} # when a workload last finished a round
  end

  def round(workload)
    @rounds[workload] += 1
    @last_round[workload] = Account.now
  end

  # @param stats [Hash] of a scheduler, after all its fibers have ended
  def close(stats) = @left = stats.slice(:live, :parked, :watchers, :timers)
end

# See bin/check soak.
class Soak
  THREADS = Integer(ENV.fetch("THREADS", 3))
  # A round takes far less. A workload without a round in this time has missed a wake-up.
  STUCK = Integer(ENV.fetch("STUCK", 60))

  # Seconds of GC.stress at a time. It ends when this thread gets the GVL again, and takes a tenth of the time.
  BURST = 0.02

  def initialize(seconds)
    @seconds = seconds
    @seed = Integer(ENV.fetch("SEED") { Random.new_seed % 1_000_000 })
    @wrong = []
    @memory = Memory.new
    @stressed = 0
    @accounts = Array.new(THREADS) { Account.new }
    @queues = Array.new(THREADS) { Queue.new }
  end

  # @return [Boolean] whether nothing failed
  def run
    puts "soak: Ruby #{RUBY_VERSION}, #{Reactor.backend}, #{@seconds} s, SEED=#{@seed}"
    puts "this Ruby has no OpenSSL, so no TLS" unless Workloads::CONTEXT
    Bench.descriptors(8192)
    leftovers = Fuzz::Leftovers.new
    @end = Account.now + @seconds
    threads = @accounts.each_index.map { |i| Thread.new { work(i) } }
    watch(threads)
    threads.each { |thread| thread.join(STUCK) or give_up("a thread did not end", threads) }
    look_for_leaks(leftovers)
    report
    @wrong.empty?
  end

  private

  def over? = Account.now > @end

  def work(number)
    account = @accounts[number]
    Fiber.set_scheduler(scheduler = Reactor::Scheduler.new)
    workloads = Workloads.new(account, @seed + number, @queues[number], @queues[(number + 1) % THREADS])
    Workloads::ALL.each do |workload|
      2.times { Fiber.schedule { run_workload(workloads, workload, account) } }
    end
    scheduler.run
    account.close(scheduler.stats)
  rescue Exception => error # rubocop:disable Lint/RescueException -- every error is reported
    wrong "thread #{number}: #{error.full_message}"
  end

  def run_workload(workloads, workload, account)
    account.round(workload)
    until over?
      workloads.public_send(workload)
      account.round(workload)
      sleep 0 # some workloads never wait
    end
    account.last_round.delete(workload)
  rescue StandardError => error
    account.last_round.delete(workload)
    wrong "#{workload}: #{error.full_message}"
  end

  def wrong(what)
    @wrong << what
    warn "WRONG: #{what}"
  end

  # Checks progress and samples memory while the threads work, and sometimes turns GC.stress on for a moment.
  def watch(threads)
    step = [@seconds / 100.0, 0.1].max
    while threads.any?(&:alive?) && !over?
      sleep step
      @memory.sample
      stress
      late = Account.now - STUCK
      @accounts.each_with_index do |account, i|
        stuck = account.last_round.select { |_, time| time < late }
        give_up("no progress in #{stuck.keys.join(", ")} of thread #{i}", threads) unless stuck.empty?
      end
    end
  end

  def stress
    return if Account.now < @calm.to_f

    @stressed += 1
    start = Account.now
    GC.stress = true
    sleep BURST
  ensure
    GC.stress = false
    @calm = Account.now + 9 * (Account.now - start) if start
  end

  # Ends the process, because hung threads cannot be counted.
  def give_up(what, threads)
    wrong what
    threads.each { |thread| warn "#{thread.inspect}\n    #{(thread.backtrace || []).first(8).join("\n    ")}" }
    ObjectSpace.each_object(Fiber).select(&:alive?).each { |fiber| warn "#{fiber.inspect}\n    #{(fiber.backtrace || []).first(4).join("\n    ")}" }
    Process.exit!(1)
  end

  def look_for_leaks(leftovers)
    leftovers.found.each { |kind, left| wrong "#{kind} left: #{left}" unless [0, []].include?(left) }
    @accounts.each_with_index { |account, i| wrong "thread #{i} left #{account.left.inspect}" unless account.left&.values&.all?(&:zero?) }
    missing = @accounts.sum(&:sent) - @accounts.sum(&:received) - @queues.sum { |queue| drained(queue) }
    wrong "#{missing} missing from the queues" unless missing.zero?
  end

  def drained(queue) = Array.new(queue.size) { queue.pop }.sum

  def report
    rounds = @accounts.map(&:rounds).reduce { |sum, one| sum.merge(one) { |_, a, b| a + b } }
    puts "rounds: #{rounds.map { |workload, count| "#{workload} #{count}" }.join(", ")}"
    puts "bytes compared: #{@accounts.sum(&:bytes)}; sum through queues: #{@accounts.sum(&:sent)}"
    puts "bursts of GC.stress: #{@stressed}"
    puts "left: 0 fibers, timers, descriptors, threads, children" if @wrong.empty?
    puts @memory.judge { |what| wrong what }
    puts @wrong.empty? ? "nothing wrong" : "#{@wrong.size} WRONG"
  end
end

$stdout.sync = true
exit Soak.new(Integer(ARGV.fetch(0))).run

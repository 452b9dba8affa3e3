# frozen_string_literal: true

require "etc"
require_relative "../histogram"
require_relative "../checks"
require_relative "pool"

module Reactor
  # Decides whether an operation runs inline or on a worker.
  #
  # A worker costs two thread switches, about 50 us. Most operations that Ruby offers to the scheduler (open, stat, each directory
  # entry) take only a few. So an operation runs inline if operations from the same place have been cheap.
  #
  # The cost of a place is the duration of its last operation, or 7/8 of its previous cost if that is more. So an unexpectedly slow
  # operation blocks the loop once, and the next ones run on workers until the cost has decayed: after 10 ms, that takes 30
  # operations of 5 us.
  #
  # @api private
  class OffloadPolicy
    # The default limit of workers.
    WORKERS = [4, Etc.nprocessors].max

    POLICIES = %i[measured always never].freeze

    # The longest that an operation may take inline, in seconds.
    THRESHOLD = 200e-6
    # The most places to keep. A place is a code address or a name, and addresses change when code is reloaded.
    MAX_PLACES = 4096
    private_constant :THRESHOLD, :MAX_PLACES

    # @param policy [Symbol] :measured, :always or :never
    # @param workers [Integer] maximum number of threads
    # @raise [ArgumentError] the policy is unknown; workers is below 1
    # @raise [TypeError] workers is not an Integer
    def initialize(policy, workers)
      raise ArgumentError, "unknown policy #{policy.inspect} (known: #{POLICIES.join(", ")})" unless POLICIES.include?(policy)

      # Outside the main Ractor, Ruby 3.4 crashed in half the runs when another fiber got control during a blocking operation.
      @may_switch = Ractor.current.equal?(Ractor.main)
      @policy = @may_switch ? policy : :never
      @workers = WorkerPool.new(Checks.count(:workers, workers))
      @own_threads = {}.compare_by_identity # pools of one thread
      @costs = {} # place => seconds
      @on_worker = 0
      @inline = 0
    end

    # @return [Boolean] whether another fiber may run before a blocking operation has ended
    def may_switch? = @may_switch

    # Runs the work, inline or on a worker.
    #
    # @param place [Object] identifies where the work comes from
    # @param work [#call]
    # @return what the work returns
    def call(place, work)
      if @policy == :never || (@policy == :measured && @costs.fetch(place, Float::INFINITY) <= THRESHOLD)
        @inline += 1
        # Runs in a blocking fiber, because otherwise Ruby would offer the same operation again.
        measure(place) { Fiber.blocking { work.call } }
      else
        run_on_worker { measure(place) { work.call } }
      end
    end

    # Runs the block on a worker, or inline if there is none and none can be started.
    def run_on_worker(&work)
      @on_worker += 1
      @workers.run(-> { run_inline(work) }, &work)
    end

    # Runs a block that may wait forever, on a new thread. The thread ends with the block, and does not count towards the limit.
    def run_on_own_thread(otherwise = nil, &)
      @on_worker += 1
      @own_threads[pool = WorkerPool.new(1)] = true
      pool.run(otherwise, &)
    ensure
      @own_threads.delete(pool)
      pool&.finish
    end

    # @return [Hash{Symbol => Integer}] see {Inspection#stats}
    def stats = { offload_inline: @inline, offload_on_worker: @on_worker, offload_threads: pools.sum(&:size) }

    # Asks all threads to end. No new ones start.
    def stop = pools.each(&:stop)

    # Waits for the end of all threads.
    def join = pools.each(&:join)

    # @return [Histogram] how long work waited for one of the workers
    def queue_times = @workers.queue_times.snapshot

    private

    def measure(place)
      start = Clock.now
      yield
    ensure
      @costs.clear if @costs.size >= MAX_PLACES
      @costs[place] = [Clock.now - start, @costs.fetch(place, 0) * 0.875].max
    end

    # Called when there is no worker.
    def run_inline(work)
      @on_worker -= 1
      @inline += 1
      Fiber.blocking { work.call }
    end

    def pools = [@workers, *@own_threads.keys]
  end
end

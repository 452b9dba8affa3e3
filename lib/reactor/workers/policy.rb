# frozen_string_literal: true

require "etc"
require_relative "pool"

module Reactor
  # Decides what is done on the spot and what by the {WorkerPool}: by what it has cost before.
  #
  # Handing over costs two thread switches, some 50 us; most operations that Ruby offers to hand over (open, stat, each
  # entry of a directory) take a few. So each place they come from has an estimate of what a call costs, which follows what
  # calls have taken: quickly upwards, slowly downwards. A place not seen before, and one whose estimate is above the
  # threshold, is handed over. A call that is suddenly expensive therefore holds up the loop once, and the dozens that
  # follow it do not: from 10 ms, it takes 41 cheap calls to be trusted again.
  # @api private
  class OffloadPolicy
    # Seconds an operation may be expected to take on the spot.
    THRESHOLD = 200e-6

    # How far the estimate goes towards a call that took more, and towards one that took less.
    RISE = 1 / 4.0
    FALL = 1 / 16.0

    # WorkerPool, unless the scheduler is told otherwise.
    WORKERS = [4, Etc.nprocessors].max

    # Threads that wait for somebody else to do something, who may need a thread as well. They cost next to nothing.
    PATIENT = 256
    private_constant :PATIENT

    POLICIES = %i[measured always never].freeze

    # @param policy [Symbol] :measured, :always or :never
    # @param workers [Integer] threads at most
    # @raise [ArgumentError] for any other policy, or fewer than one worker
    # @raise [TypeError] workers is no Integer
    def initialize(policy, workers)
      raise ArgumentError, "unknown policy #{policy.inspect} (there are: #{POLICIES.join(", ")})" unless POLICIES.include?(policy)
      raise TypeError, "workers is an Integer, not #{workers.class}" unless workers.is_a?(Integer)
      raise ArgumentError, "at least one worker is needed, not #{workers}" unless workers.positive?

      # In another Ractor than the main one, Ruby 3.4 crashed in half the runs when a fiber was switched in its hand-over.
      @policy = Ractor.current.equal?(Ractor.main) ? policy : :never
      @workers = WorkerPool.new(workers)
      @patient = WorkerPool.new(PATIENT)
      @estimates = {}
      @handed = 0
      @kept = 0
    end

    # Does the work, here or elsewhere.
    #
    # @param place [Object] where it comes from
    def call(place, work)
      if @policy == :never || (@policy == :measured && cheap?(place))
        @kept += 1
        # Blocking, or Ruby would offer the same operation once more.
        measure(place) { Fiber.blocking { work.call } }
      else
        hand_over { measure(place) { work.call } }
      end
    end

    # Has the block run by a worker.
    def hand_over(&)
      @handed += 1
      @workers.run(&)
    end

    # Has the block run by a thread that it may keep for long.
    def wait_out(&)
      @handed += 1
      @patient.run(&)
    end

    def stats = { offload_kept: @kept, offload_handed: @handed, offload_threads: @workers.size + @patient.size }

    def close = [@workers, @patient].each(&:close)

    private

    # Estimates kept at most: places are told apart by where their code lies, which changes.
    PLACES = 4096
    private_constant :PLACES

    def cheap?(place) = @estimates.fetch(place, Float::INFINITY) <= THRESHOLD

    def measure(place)
      start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      yield
    ensure
      took = Process.clock_gettime(Process::CLOCK_MONOTONIC) - start
      estimate = @estimates.fetch(place, took)
      @estimates.clear if @estimates.size >= PLACES
      @estimates[place] = estimate + ((took - estimate) * (took > estimate ? RISE : FALL))
    end
  end
end

# frozen_string_literal: true

require_relative "helper"

# The estimate that decides whether an operation runs inline or on a worker. The test moves the clock itself.
class TestCostEstimate < ReactorTest
  class ManualClock
    def initialize = @now = 0.0

    def clock_gettime(_id) = @now

    def pass(seconds) = @now += seconds
  end

  CHEAP = 5e-6
  EXPENSIVE = 10e-3

  def setup
    super
    @clock = ManualClock.new
    @costs = Reactor::CostEstimate.new(@clock)
  end

  def take(seconds, place: :here) = @costs.measure(place) { @clock.pass(seconds) }

  def test_an_unmeasured_place_is_not_cheap
    refute @costs.cheap?(:here)
  end

  def test_the_first_measurement_of_a_place_classifies_it
    take(CHEAP)
    assert @costs.cheap?(:here)
    refute @costs.cheap?(:elsewhere)
    take(EXPENSIVE, place: :elsewhere)
    refute @costs.cheap?(:elsewhere)
    assert @costs.cheap?(:here)
  end

  def test_a_cost_at_the_threshold_is_cheap
    take(Reactor::CostEstimate::THRESHOLD)
    assert @costs.cheap?(:here)
  end

  # After one expensive operation a place is not cheap until 40 cheap ones have come.
  def test_the_estimate_rises_quickly_and_falls_slowly
    1000.times { take(CHEAP) }
    assert @costs.cheap?(:here)
    take(EXPENSIVE)
    needed = 0
    until @costs.cheap?(:here)
      take(CHEAP)
      needed += 1
    end
    assert_equal 40, needed
  end

  def test_an_operation_that_raises_is_measured
    error = assert_raises(IndexError) { @costs.measure(:here) { @clock.pass(EXPENSIVE); raise IndexError } }
    assert_instance_of IndexError, error
    refute @costs.cheap?(:here)
    assert_equal(:value, @costs.measure(:here) { :value })
  end

  # Reloaded code has new places, so their number is limited.
  def test_the_oldest_place_is_dropped_at_the_limit
    (Reactor::CostEstimate::MAX_PLACES + 1).times { |number| take(CHEAP, place: number) }
    refute @costs.cheap?(0)
    assert @costs.cheap?(Reactor::CostEstimate::MAX_PLACES)
  end
end

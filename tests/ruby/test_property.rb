# frozen_string_literal: true

require_relative "helper"
require_relative "group_trees"
require_relative "seeds"
require "reactor/testing"

# Random trees of groups, deadlines, shields and timeouts end as the model predicts.
#
#   SEED=123 TREES=1 ruby -Ilib tests/ruby/test_property.rb    the tree with this seed
#   TREES=10000 …                                              more trees, from SEED on; a tree takes 7 ms
#   THREADS=1 …                                                with work on other threads, whose order the seed does not determine
class TestProperty < ReactorTest
  SEED = Integer(ENV.fetch("SEED", 1))
  THREADS = ENV.key?("THREADS")
  TREES = Integer(ENV.fetch("TREES", LONG ? 2000 : 250))

  # @return [World] after its end
  def grow(seed)
    world = GroupTrees::World.new(seed, threads: THREADS)
    Reactor::Testing.virtual_time(settle: 0) do
      Fiber.scheduler.define_singleton_method(:report_error) { |error, *, **| world.report(error) }
      world.run
    end
    world
  end

  def note(seeds, seed, world) = world.violations.uniq.each { |what| seeds.failed(what, seed) }
  def assert_none_failed(seeds) = assert_empty(seeds.report { |seed| "SEED=#{seed} TREES=1" }.first(5))

  def test_random_trees_of_scopes_end_as_the_model_says_in_virtual_time
    seeds = Seeds.new(seed: SEED, count: TREES, enough: 5)
    run_plain(within: TEST_TIMEOUT + (TREES / 20)) { seeds.run { |seed| note(seeds, seed, grow(seed)) } }
    assert_none_failed(seeds)
  end

  def test_random_trees_of_scopes_end_as_the_model_says
    seeds = Seeds.new(seed: SEED, count: (TREES / 10) + 1)
    worlds = {}
    run_scheduler do |scheduler|
      world = nil
      scheduler.define_singleton_method(:report_error) { |error, *, **| world.report(error) }
      Fiber.schedule { seeds.run { |seed| (world = worlds[seed] = GroupTrees::World.new(seed, exact: false, threads: THREADS)).run } }
      scheduler.run
    end
    worlds.each { |seed, world| note(seeds, seed, world) }
    assert_none_failed(seeds)
  end

  def test_a_seed_determines_the_tree
    skip "the backend completes operations in an order of its own" if %i[uring iocp].include?(BACKEND)
    skip "threads run in an order of their own" if THREADS
    run_plain do
      (SEED...SEED + [TREES, 40].min).each do |seed|
        logs = Array.new(2) { grow(seed).log }
        assert_equal(*logs.map { |log| log.map { |time, *what| [time - log[0][0], *what] } }, "SEED=#{seed}")
      end
    end
  end
end

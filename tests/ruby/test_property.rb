# frozen_string_literal: true

require_relative "helper"
require_relative "group_trees"
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

  # @param worlds [Hash{Integer => World}] by seed
  def assert_no_violations(worlds)
    violations = worlds.flat_map { |seed, world| world.violations.uniq.map { |what| "SEED=#{seed} TREES=1: #{what}" } }
    assert_empty violations.first(5), "#{violations.size} violations"
  end

  def test_random_trees_of_scopes_end_as_the_model_says_in_virtual_time
    run_plain(within: TEST_TIMEOUT + (TREES / 20)) do
      (SEED...SEED + TREES).each_slice(50) { |seeds| assert_no_violations(seeds.to_h { |seed| [seed, grow(seed)] }) }
    end
  end

  def test_random_trees_of_scopes_end_as_the_model_says
    worlds = (SEED..SEED + (TREES / 10)).to_h { |seed| [seed, GroupTrees::World.new(seed, exact: false, threads: THREADS)] }
    run_scheduler do |scheduler|
      world = nil
      scheduler.define_singleton_method(:report_error) { |error, *, **| world.report(error) }
      Fiber.schedule { worlds.each_value { |each| (world = each).run } }
      scheduler.run
    end
    assert_no_violations(worlds)
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

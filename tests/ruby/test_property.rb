# frozen_string_literal: true

require_relative "helper"
require_relative "group_trees"
require "reactor/testing"

# Random trees of groups end as the model predicts.
#
#   SEED=123 ruby -Ilib tests/ruby/test_property.rb    the same decisions again
#   REACTOR_LONG=1 …                                   2000 trees
class TestProperty < ReactorTest
  SEED = Integer(ENV.fetch("SEED") { Random.new_seed % 1_000_000 })
  TREES = LONG ? 2000 : 60

  def test_random_trees_of_groups_end_as_the_model_says
    $stderr.puts "SEED=#{SEED}"
    world = GroupTrees::World.new(SEED)
    run_scheduler do |scheduler|
      Fiber.schedule { world.disturb }
      Fiber.schedule { world.run(TREES) }
      scheduler.run
    end
    assert_equal [], world.violations.first(5), "#{world.violations.size} violations with SEED=#{SEED}"
  end

  def test_random_trees_of_groups_end_as_the_model_says_in_virtual_time
    $stderr.puts "SEED=#{SEED}"
    world = GroupTrees::World.new(SEED)
    run_plain do
      Reactor::Testing.virtual_time(settle: 0) do
        Fiber.schedule { world.disturb }
        world.run(TREES)
      end
    end
    assert_equal [], world.violations.first(5), "#{world.violations.size} violations with SEED=#{SEED}"
    assert_operator world.log.size, :>, TREES
  end
end

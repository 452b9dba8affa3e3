# frozen_string_literal: true

require_relative "helper"

# IO.select parks once for all its descriptors.
class TestIOSelect < ReactorTest
  def test_select_with_nil_lists_and_every_arity
    r, w = pipe
    in_fiber do
      assert_equal [[], [w], []], IO.select(nil, [w])
      assert_equal [[], [w], []], IO.select([r], [w], nil)
      assert_equal [[], [w], []], IO.select([r], [w], [r], nil)
      assert_equal [[], [w], []], IO.select([], [w], [], TEST_TIMEOUT)
      assert_equal [[], [w], []], Kernel.select([r], [w])
    end
  end

  def test_select_with_a_timeout
    r, = pipe
    in_fiber do
      assert_nil IO.select([r], nil, nil, 0)
      assert_operator elapsed { assert_nil IO.select([r], nil, nil, 0.03) }, :>=, 0.03
      assert_operator elapsed { assert_nil IO.select(nil, nil, nil, 0.02) }, :>=, 0.02
      assert_operator elapsed { assert_nil IO.select([], [], [], 0.02) }, :>=, 0.02
    end
  end

  def test_select_parks_only_its_fiber
    r, w = pipe
    log = []
    run_scheduler do
      Fiber.schedule { IO.select([r], nil, nil, TEST_TIMEOUT); log << :select }
      Fiber.schedule { 3.times { sleep 0.001; log << :other }; w << "x" }
    end
    assert_equal %i[other other other select], log
  end

  def test_ready_ios_are_returned_in_order
    pipes = Array.new(5) { pipe }
    in_fiber do
      [3, 1].each { |i| pipes[i][1] << "x" }
      assert_equal [[pipes[1][0], pipes[3][0]], [], []], IO.select(pipes.map(&:first))
    end
  end

  def test_the_given_objects_are_returned
    r, w = pipe
    wrapper = Struct.new(:to_io).new(r)
    in_fiber do
      Fiber.schedule { sleep 0; w << "x" }
      assert_same wrapper, IO.select([wrapper])[0][0]
    end
  end

  def test_an_io_with_buffered_data_is_readable
    r, w = pipe
    in_fiber do
      w << "one\ntwo\n"
      r.gets
      assert_equal [[r], [], []], IO.select([r], nil, nil, TEST_TIMEOUT)
    end
  end

  def test_one_descriptor_in_several_lists
    a, b = pair
    in_fiber do
      assert_equal [[], [a], []], IO.select([a], [a], nil, TEST_TIMEOUT)
      b << "x"
      assert_equal [[a], [a], []], IO.select([a], [a], [a], TEST_TIMEOUT)
    end
  end

  def test_an_io_listed_twice_is_returned_twice
    r, w = pipe
    in_fiber do
      w << "x"
      assert_equal [[r, r], [], []], IO.select([r, r])
    end
  end

  def test_several_selects_on_the_same_descriptors
    r, = pipe
    r2, w2 = pipe
    log = []
    run_scheduler do
      3.times { |i| Fiber.schedule { IO.select([r, r2]); log << i } }
      Fiber.schedule { w2 << "x" }
    end
    assert_equal [0, 1, 2], log.sort
  end

  def test_select_on_two_hundred_descriptors
    pipes = Array.new(200) { pipe }
    readers = pipes.map(&:first)
    seen = []
    run_scheduler do
      Fiber.schedule do
        until seen.size == 200
          IO.select(readers)[0].each { |r| seen << r.readpartial(9).to_i; readers.delete(r) }
        end
      end
      Fiber.schedule { pipes.each_with_index.to_a.shuffle(random: Random.new(2)).each { |(_, w), i| w << i.to_s; sleep 0 if (i % 10).zero? } }
    end
    assert_equal (0...200).to_a, seen.sort
  end

  def test_wrong_arguments_raise_the_errors_of_plain_ruby
    r, = pipe
    closed, other = pipe
    [closed, other].each(&:close)
    calls = {
      "no list" => -> { IO.select(1) },
      "no IO" => -> { IO.select(["x"]) },
      "negative" => -> { IO.select([r], nil, nil, -1) },
      "no number" => -> { IO.select([r], nil, nil, "soon") },
      "closed" => -> { IO.select([closed]) },
      "closed beside a good one" => -> { IO.select([r], [closed], nil, 0.01) },
      "no arguments" => -> { IO.select }
    }
    expected = run_plain { calls.transform_values { |call| outcome(&call) } }
    got = {}
    in_fiber { calls.each { |name, call| got[name] = outcome(&call) } }
    assert_equal expected, got
    assert_equal [:raised], got.values.map(&:first).uniq
  end
end

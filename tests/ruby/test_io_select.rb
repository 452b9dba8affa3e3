# frozen_string_literal: true

require_relative "helper"

# IO.select parks once for all its descriptors.
class TestIOSelect < ReactorTest
  # Calls on a pipe with data (r, w), an empty one (e), a pipe whose data is in Ruby's read buffer (b), a socket with data (u),
  # and an object that converts to r (o).
  ANSWERS = {
    "two lists" => [->(s) { IO.select(nil, [s.w]) }, ->(s) { [[], [s.w], []] }],
    "no time" => [->(s) { IO.select([s.e], [s.w], [s.e], nil) }, ->(s) { [[], [s.w], []] }],
    "an empty list" => [->(s) { IO.select([], [s.w], [], TEST_TIMEOUT) }, ->(s) { [[], [s.w], []] }],
    "Kernel#select" => [->(s) { Kernel.select([s.e], [s.w]) }, ->(s) { [[], [s.w], []] }],
    "the order of the list" => [->(s) { IO.select([s.e, s.r, s.b]) }, ->(s) { [[s.r, s.b], [], []] }],
    "an IO twice" => [->(s) { IO.select([s.r, s.r]) }, ->(s) { [[s.r, s.r], [], []] }],
    "an IO in several lists" => [->(s) { IO.select([s.u], [s.u], [s.u], TEST_TIMEOUT) }, ->(s) { [[s.u], [s.u], []] }],
    "the given object" => [->(s) { IO.select([s.o]) }, ->(s) { [[s.o], [], []] }]
  }.freeze
  Sources = Struct.new(:r, :w, :e, :b, :u, :o)

  ANSWERS.each do |name, (question, answer)|
    define_method("test_select_with_#{name.tr(" ", "_")}") do
      r, w = pipe
      e, = pipe
      b, feeding = pipe
      u, other = pair
      in_fiber do
        w << "x"
        other << "x"
        feeding << "one\ntwo\n"
        b.gets
        sources = Sources.new(r, w, e, b, u, Struct.new(:to_io).new(r))
        found = question.call(sources)
        answer.call(sources).zip(found) { |expected, list| assert_equal expected.map(&:object_id), list.map(&:object_id) }
      end
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

  # IOs whose peer has gone. Plain Ruby's IO.select reports only urgent data as an exceptional condition.
  HUNG_UP = {
    a_socket: ->(test) { test.pair.then { |ours, theirs| theirs.close; ours } },
    a_reader: ->(test) { test.pipe.then { |reader, writer| writer.close; reader } },
    a_writer: ->(test) { test.pipe.then { |reader, writer| reader.close; writer } }
  }.freeze

  HUNG_UP.each do |name, open|
    define_method("test_select_waits_beside_#{name}_that_has_hung_up_and_has_no_urgent_data_and_does_not_spin") do
      skip "no urgent data with kqueue and on Windows" unless %i[epoll uring poll].include?(BACKEND)
      gone = open.call(self)
      r, w = pipe
      run_scheduler do |scheduler|
        Fiber.schedule do
          before = scheduler.stats
          assert_equal [[r], [], []], IO.select([r], nil, [gone])
          assert_operator %i[registered rearmed renewed].sum { |count| scheduler.stats[count] - before[count] }, :<, 20
          assert_nil IO.select(nil, nil, [gone], 0.001)
        end
        Fiber.schedule { 100.times { sleep 0.0001 }; w << "x" }
      end
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
    calls.each do |name, call|
      assert_as_plain(name) { outcome(&call) }
      assert_equal :raised, outcome(&call).first, name
    end
  end
end

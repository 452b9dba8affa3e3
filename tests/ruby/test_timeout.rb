# frozen_string_literal: true

require_relative "helper"
require "reactor/testing"

# The timeout_after hook, through Timeout.timeout and directly.
class TestTimeout < ReactorTest
  class Own < StandardError; end

  # Each has a time limit that elapses at once, and waits.
  SWALLOWING = {
    "a bare rescue" => -> { Timeout.timeout(0.002) { begin sleep; rescue => error; error.class end } },
    "a rescue of Timeout::Error" => -> { Timeout.timeout(0.002) { begin sleep; rescue Timeout::Error; :swallowed end } },
    "a rescue of Exception" => -> { Timeout.timeout(0.002) { begin sleep; rescue Exception => error; error.class end } },
    "a message" => -> { Timeout.timeout(0.002, nil, "late") { begin sleep; rescue => error; error.class end } },
    "an ensure" => -> { Timeout.timeout(0.002) { begin sleep; ensure sleep 0.001 end } },
    "an explicit Timeout::Error" => -> { Timeout.timeout(0.002, Timeout::Error) { begin sleep; rescue => error; error.class end } },
    "an explicit class" => -> { Timeout.timeout(0.002, Own, "own") { begin sleep; rescue Own => error; error.message end } },
    "the outer of two" => -> { Timeout.timeout(0.002) { begin Timeout.timeout(TEST_TIMEOUT) { sleep }; rescue => error; error.class end } },
    "the inner of two" => -> { Timeout.timeout(TEST_TIMEOUT) { begin Timeout.timeout(0.002) { sleep }; rescue => error; error.class end } },
    "the inner of two, and a rescue in both" => lambda do
      Timeout.timeout(TEST_TIMEOUT) { begin Timeout.timeout(0.002) { begin sleep; rescue => error; error end }; rescue => error; error.class end }
    end,
    "an explicit class around a default" => lambda do
      Timeout.timeout(0.002, Own) { begin Timeout.timeout(TEST_TIMEOUT) { sleep }; rescue Timeout::Error; :swallowed end }
    end,
    "an Enumerator" => -> { Timeout.timeout(0.002) { Enumerator.new { |y| begin y << sleep; rescue => error; y << error.class end }.next } },
    "the included method" => -> { Class.new { include Timeout; def run = timeout(0.002) { begin sleep; rescue => error; error.class end } }.new.run },

    "a block that ends" => -> { Timeout.timeout(TEST_TIMEOUT) { |seconds| seconds } },
    "a block that waits and ends" => -> { Timeout.timeout(TEST_TIMEOUT + 0.25) { |seconds| sleep 0.001; seconds } },
    "no limit" => -> { Timeout.timeout(nil) { :none } },
    "a limit of 0" => -> { Timeout.timeout(0) { :none } },
    "a block that breaks" => -> { Timeout.timeout(TEST_TIMEOUT) { break :broken } }
  }.freeze

  def test_a_timeout_is_swallowed_by_no_rescue_that_plain_ruby_would_pass
    skip_under_stress
    raised = ->(wait) { begin wait.call; rescue Exception => error; [error.class, error.message] end } # rubocop:disable Lint/RescueException
    expected = SWALLOWING.transform_values { |wait| run_plain { raised.call(wait) } }
    got = {}
    run_scheduler { SWALLOWING.each { |name, wait| Fiber.schedule { got[name] = raised.call(wait) } } }
    assert_equal expected, expected.to_h { |name, _| [name, got[name]] }
  end

  def test_the_included_method_of_timeout_stays_private
    run_scheduler { nil }
    assert_raises(NoMethodError) { Class.new { include Timeout }.new.timeout(1) { nil } }
  end

  # Each is given the arguments of two timeouts, and a log of what is raised where the inner block waits.
  NESTED = {
    "in one fiber" => lambda do |outer, inner, log|
      Timeout.timeout(*outer) { Timeout.timeout(*inner) { compute_until_due; 2.times { log_raised(log) } } }
    end,
    "inside an Enumerator" => lambda do |outer, inner, log|
      timed = Enumerator.new { |y| Timeout.timeout(*inner) { compute_until_due; 2.times { log_raised(log) }; y << :ended } }
      Timeout.timeout(*outer) { timed.next }
    end
  }.freeze
  LIMIT = 0.001

  # Until both limits have elapsed. No hook is called, so nothing is raised meanwhile.
  def self.compute_until_due
    due = Process.clock_gettime(Process::CLOCK_MONOTONIC) + LIMIT
    nil until Process.clock_gettime(Process::CLOCK_MONOTONIC) > due
  end

  def self.log_raised(log)
    sleep
  rescue Exception => error # rubocop:disable Lint/RescueException -- that of a timeout without a class as well
    log << error.message
  end

  # Timeouts that end in the order in which they began free their slots for the next ones in the opposite order.
  def end_timeouts_in_order(count)
    queues = Array.new(count) { Queue.new }
    queues.each { |queue| Fiber.schedule { Timeout.timeout(TEST_TIMEOUT) { queue.pop } } }
    queues.each { |queue| queue << true; sleep 0 until queue.num_waiting.zero? }
  end

  # In plain Ruby, one thread raises them in the order in which they began.
  def test_of_two_timeouts_that_are_due_at_once_the_outer_one_is_raised_first
    skip_under_stress
    NESTED.to_a.product([nil, Own], [nil, Own], [LIMIT, 1e-9]) do |(name, wait), outer, inner, limit|
      log = []
      in_fiber do
        end_timeouts_in_order(2)
        outcome { wait.call([LIMIT, outer, "outer"], [limit, inner, "inner"], log) }
      end
      assert_equal %w[outer inner], log, "#{name}: #{outer.inspect} around #{inner.inspect} of #{limit} s"
    end
  end

  # In the ensure clause of an Enumerator that both surround.
  def test_of_two_timeouts_that_are_due_at_once_around_an_enumerator_both_are_raised
    log = []
    run_plain do
      Reactor::Testing.virtual_time do
        waits = Enumerator.new do |yielder|
          3.times { sleep 2; log << :slept } rescue log << $!.message
          begin; sleep 2; log << :slept; rescue Timeout::Error, Own; log << $!.message; end
          yielder << 1
        end
        Timeout.timeout(1, Own, "outer") { Timeout.timeout(1, Own, "inner") { waits.next } }
      end
    end
    assert_equal %w[outer inner], log
  end

  # The limit elapses in a turn that another fiber makes while the middle Enumerator starts that fiber.
  def test_a_timeout_in_an_enumerator_that_resumes_another_one_is_raised_there
    log = []
    run_plain do
      Reactor::Testing.virtual_time do
        inner = Enumerator.new { |yielder| (sleep 2; log << :slept) rescue log << $!.message; yielder << 1 }
        outer = Enumerator.new { |yielder| yielder << Timeout.timeout(1e-9, Own, "middle") { Fiber.schedule { 3.times { Fiber.scheduler.yield }; sleep 1 }; inner.next } }
        outer.next
      end
    end
    assert_equal %w[middle], log
  end

  # In plain Ruby it may be raised at any instruction before the block has ended.
  def test_a_timeout_that_is_due_with_an_outer_one_is_not_raised_if_its_block_waits_no_more
    log = []
    in_fiber do
      log << Timeout.timeout(LIMIT, Own, "outer") do
        Timeout.timeout(1e-9, Own, "inner") { TestTimeout.compute_until_due; TestTimeout.log_raised(log); :ended }
      end
    end
    assert_equal ["outer", :ended], log
  end

  def test_a_timeout_never_fires_after_its_block
    in_fiber do
      50.times { Timeout.timeout(0.001) { nil } }
      100.times { Timeout.timeout(0.001) { sleep 0.001 } rescue nil }
      assert_operator elapsed { sleep 0.03 }, :>=, 0.03
    end
  end

  def test_bytes_that_arrive_after_a_timeout_are_all_read
    skip_under_stress
    [IO.pipe, pair, tcp_pair].each do |r, w|
      r, w = w, r if r.is_a?(BasicSocket)
      data = Random.new(1).bytes(5_000)
      got = +""
      timeouts = Queue.new
      run_scheduler do
        Fiber.schedule do
          data.bytes.each_slice(500).with_index { |part, i| timeouts.pop; sleep i % 3 * 0.001; w.syswrite(part.pack("C*")) }
          w.close
        end
        Fiber.schedule do
          loop do
            got << Timeout.timeout(0.002) { r.readpartial(333) }
          rescue Timeout::Error
            timeouts << true
          rescue EOFError
            break
          end
        end
      end
      assert_bytes data, got
    ensure
      [r, w].each { |io| io.close unless io.closed? }
    end
  end

  # The polling fiber raises in fibers whose timeouts have expired. If its own timeout expires meanwhile, it must not raise in
  # another fiber.
  def test_many_timeouts_end_waits_inside_enumerators
    skip_under_stress
    log = Queue.new
    run_scheduler do
      30.times do
        Fiber.schedule do
          20.times do
            Timeout.timeout(0.002) { Enumerator.new { |y| y << sleep(0.003) }.next }
          rescue Timeout::Error
            sleep 0.001
          end
          log << :done
        end
      end
    end
    assert_equal 30, log.size
  end

  def test_cancelled_timeouts_leave_no_timers
    skip_under_stress
    needs_linux "resident memory from /proc"
    out = child_says(<<~RUBY, within: 60)
      rss = -> { GC.start; File.read("/proc/self/status")[/VmRSS:\\s+(\\d+)/, 1].to_i }
      Fiber.set_scheduler(scheduler = Reactor::Scheduler.new)
      Fiber.schedule do
        turn = -> { 50_000.times { scheduler.timeout_after(3600, RuntimeError) { nil } } }
        turn.()
        4.times { before = rss.(); turn.(); puts rss.() - before }
      end
    RUBY
    grown = out.lines.map(&:to_i)
    assert_operator grown.min, :<, 2_000, "kB per 50,000 timers: what is kept is kept each time"
  end

  # Each is run by a strand (a fiber, or a thread of plain Ruby), and waits until the timeout of a suspended Enumerator is due.
  WITH_SUSPENDED_ENUMERATORS = {
    asleep: ->(limited) { limited.next; sleep },
    in_another_enumerator: ->(limited) { limited.next; Enumerator.new { |y| sleep; y << 1 }.next },
    after_another_enumerator: ->(limited) { Enumerator.new { |y| sleep 0.001; y << 1 }.next; limited.next; sleep },
    in_a_fiber_of_its_own: ->(limited) { Fiber.new { limited.next; sleep }.resume },
    nested: ->(limited) { outer = Enumerator.new { |y| y << limited.next; y << 2 }; outer.next; sleep },
    lazy: ->(limited) { limited.lazy.map { |v| v }.eager.each_entry.next; sleep },
    rescuing: ->(limited) { begin limited.next; sleep; rescue Own; end; :went_on },
  }.freeze

  def owner_and_bystander(strand)
    WITH_SUSPENDED_ENUMERATORS.transform_values do |owner|
      log = {}
      strands = [
        strand.call do
          limited = Enumerator.new { |y| Timeout.timeout(0.02, Own) { y << 1; y << 2; y << 3 } }
          log[:owner] = outcome { owner.call(limited) }
        end,
        strand.call { log[:bystander] = outcome { sleep 0.001 until log[:owner] } },
      ]
      yield strands
      log
    end
  end

  def test_the_timeout_of_a_suspended_enumerator_is_raised_in_its_owner
    expected = run_plain { owner_and_bystander(->(&block) { Thread.new(&block) }) { |threads| threads.each(&:join) } }
    got = run_scheduler { |scheduler| owner_and_bystander(->(&block) { Fiber.schedule(&block) }) { scheduler.run } }
    assert_equal expected, got
  end

  def test_the_timeout_of_a_suspended_enumerator_whose_owner_has_ended_is_raised_nowhere
    log = []
    run_in_virtual_time do
      enumerator = Enumerator.new { |y| Timeout.timeout(0.02, Own) { y << 1; y << 2 } }
      refute_predicate Fiber.schedule { enumerator.next }, :alive?
      sleepers = Array.new(2) { Fiber.schedule { log << outcome { 20.times { sleep 0.002 } } } }
      sleep 0.001 while sleepers.any?(&:alive?)
      log << enumerator.size
    end
    assert_equal [[:value, 20], [:value, 20], nil], log
  end

  def test_an_enumerator_used_by_two_fibers_times_out_in_the_one_that_used_it_last
    log = {}
    run_in_virtual_time do
      enumerator = Enumerator.new { |y| Timeout.timeout(0.02, Own) { loop { sleep 0.001; y << 1 } } }
      waiting, turn = Thread::Queue.new, Thread::Queue.new
      Fiber.schedule { enumerator.next; turn << :over; log[:first] = outcome { waiting.pop } }
      Fiber.schedule { turn.pop; enumerator.next; log[:last] = outcome { sleep }; waiting << :woken }
    end
    assert_equal({ first: [:value, :woken], last: [:raised, Own] }, log)
  end
end

# frozen_string_literal: true

require_relative "helper"

# Every duration means in a fiber what it means in plain Ruby, for each method that takes one.
class TestDurations < ReactorTest
  Convertible = Struct.new(:seconds) { def to_f = seconds }
  Divisible = Struct.new(:whole, :fraction) { def divmod(_) = [whole, fraction] }
  Comparable = Struct.new(:seconds) { def zero? = false }
  class Coercible < Comparable
    def coerce(other) = [other, seconds]
    def <(other) = seconds < other
    def >(other) = seconds > other
  end

  class Number < Numeric
    def initialize(seconds) = @seconds = seconds
    def to_f = @seconds
    def zero? = false
    def <(other) = @seconds < other
    def >(other) = @seconds > other
    def coerce(other) = [other, @seconds]
  end

  # Durations that end by themselves, if accepted.
  SHORT = {
    "0" => 0, "0.0" => 0.0, "1e-300" => 1e-300, "-1" => -1, "-2**63" => -2**63,
    "-Infinity" => -Float::INFINITY, "-1/2" => Rational(-1, 2), "1/1000" => Rational(1, 1000), "only to_f" => Convertible.new(0.001),
    "only divmod" => Divisible.new(0, 0.001), "negative divmod" => Divisible.new(-1, 0.999),
    "divmod of no Array" => Class.new { def divmod(_) = 1 }.new, "only zero?" => Comparable.new(0.001), "coercible" => Coercible.new(0.001),
    "Numeric" => Number.new(0.001), "String" => "0.001", "true" => true, "Array" => [0, 0.001]
  }.freeze

  # Durations that something else must end.
  LONG = {
    "nil" => nil, "Infinity" => Float::INFINITY, "NaN" => Float::NAN, "1e30" => 1e30, "1e18" => 1e18, "2**63" => 2**63,
    "2**63-1" => 2**63 - 1, "2**62" => 2**62, "3600" => 3600, "Numeric, Infinity" => Number.new(Float::INFINITY),
    "Rational, 10**30" => Rational(10**31, 10)
  }.freeze

  # Here the VM itself converts in 64 bits: from 292 years to 2**63 seconds, the outcome is undefined in C; so is that of NaN on ARM.
  OVERFLOWS = [["Queue#pop", "SizedQueue#push", "Thread#join", "IO#timeout="],
               ["1e18", "2**62", "Rational, 10**30", *("NaN" if RUBY_PLATFORM.match?(/aarch64|arm64/))]].freeze

  # [wait]  waits for the duration, and returns whether it was woken, if known
  # [wake]  ends the wait from elsewhere; nil: the thread is woken, or the fiber unblocked
  Caller = Struct.new(:wait, :wake)

  def callers
    queue = Thread::Queue.new
    full = Thread::SizedQueue.new(1) << 0
    mutex = Thread::Mutex.new
    condition = Thread::ConditionVariable.new
    held = Thread::Queue.new
    reading, writing = pipe
    arrive = -> { writing.write("x") }
    arrived = ->(found) { found ? reading.read(1) : found }
    {
      "Kernel#sleep" => Caller.new(->(value) { sleep(value) && :slept }),
      "Mutex#sleep" => Caller.new(->(value) { mutex.synchronize { mutex.sleep(value) }; :slept }),
      "ConditionVariable#wait" => Caller.new(->(value) { mutex.synchronize { condition.wait(mutex, value) }; :slept },
                                             -> { mutex.synchronize { condition.signal } }),
      "Queue#pop" => Caller.new(->(value) { queue.pop(timeout: value) }, -> { queue << :woken }),
      "SizedQueue#push" => Caller.new(->(value) { full.push(0, timeout: value) && :woken }, -> { full.pop }),
      "Thread#join" => Caller.new(->(value) { joined(held, value) }, -> { held << 1 }),
      "IO.select" => Caller.new(->(value) { arrived.(IO.select([reading], nil, nil, value)) }, arrive),
      "IO#wait_readable" => Caller.new(->(value) { arrived.(reading.wait_readable(value)) }, arrive),
      "IO#timeout=" => Caller.new(->(value) { reading.timeout = value; reading.read(1) }, arrive),
      "Timeout.timeout" => Caller.new(->(value) { Timeout.timeout(value) { value == 0 ? :no_limit : queue.pop } }, -> { queue << :woken })
    }
  end

  def joined(held, limit)
    thread = Thread.new { held.pop }
    thread.join(limit) && :woken
  ensure
    held << 1 if thread&.alive?
    thread&.join
    held.clear
  end

  # The value, or the class and the message of the error. (For a scheduler, Ruby has another message for IO::TimeoutError.)
  def told
    yield
  rescue IO::TimeoutError
    IO::TimeoutError
  rescue StandardError => error
    [error.class, error.message]
  end

  # In plain Ruby, Timeout's thread dies of a time beyond its clock, which is not reported here.
  def plainly(caller, value, wake:)
    reports, Thread.report_on_exception = Thread.report_on_exception, false
    thread = Thread.new { told { caller.wait.call(value) } }
    if wake
      until_asleep(thread)
      (caller.wake || -> { thread.wakeup }).call if thread.alive?
    end
    join_or_fail(thread, TEST_TIMEOUT)
    thread.value
  ensure
    Thread.report_on_exception = reports
  end

  def concurrently(caller, value, wake:)
    run_scheduler do |scheduler|
      answer = nil
      fiber = Fiber.schedule { answer = told { caller.wait.call(value) } }
      sleep 0.001 # a duration that is over at once ends its wait before
      (caller.wake || -> { scheduler.unblock(nil, fiber) }).call if wake && fiber.alive?
      scheduler.run
      answer
    end
  end

  def compared(values, wake:)
    different = callers.keys.flat_map do |name|
      values.filter_map do |label, value|
        next if [name, label].zip(OVERFLOWS).all? { |given, listed| listed.include?(given) }

        expected = plainly(callers.fetch(name), value, wake: wake)
        got = concurrently(callers.fetch(name), value, wake: wake)
        "#{name}, #{label}: #{expected.inspect} in plain Ruby, #{got.inspect} in a fiber" if expected != got
      end
    end
    assert_equal [], different
  end

  def test_short_and_wrong_durations_do_in_a_fiber_what_they_do_in_plain_ruby = compared(SHORT, wake: false)

  def test_long_durations_do_in_a_fiber_what_they_do_in_plain_ruby = compared(LONG, wake: true)
end

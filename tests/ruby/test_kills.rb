# frozen_string_literal: true

require_relative "helper"

# A fiber, its scheduler or its thread is killed: all ensure clauses run, and may wait.
class TestKills < ReactorTest
  def test_ensure_clauses_of_cancelled_fibers_may_do_io
    cancelled_fibers_write_to_each_other { next }
  end

  # The fiber waits a second time while the root fiber is already waiting.
  def test_a_kill_while_another_fiber_than_the_root_polls_cancels_all_fibers
    cancelled_fibers_write_to_each_other(&:pop)
  end

  # Through a socket, in their ensure clauses: the thread is killed.
  def cancelled_fibers_write_to_each_other
    before = descriptors
    log, waiting, gate = Array.new(3) { Queue.new }
    thread = Thread.new do
      Fiber.set_scheduler(Reactor::Scheduler.new)
      a, b = UNIXSocket.pair
      Fiber.schedule do
        sleep
      ensure
        a.puts "bye"
        log << a.gets
        a.close
      end
      Fiber.schedule do
        yield gate
        waiting << Fiber.scheduler
        b.gets
      ensure
        log << b.gets # the kill interrupted the first gets
        b.puts "so long"
        b.close
        log << `echo child`
        log << Timeout.timeout(0.01) { sleep } rescue log << $!.class
      end
    end
    until_asleep(thread)
    gate << true
    scheduler = waiting.pop(timeout: TEST_TIMEOUT)
    assert eventually { scheduler.fibers.any? { |sighting| sighting.state == :waiting && sighting.hook == :io } }
    until_asleep(thread).kill
    join_or_fail(thread, TEST_TIMEOUT)
    assert_equal ["Timeout::Error", "bye\n", "child\n", "so long\n"], Array.new(log.size) { log.pop.to_s }.sort
    assert eventually { leaked_descriptors(before).empty? }, -> { leaked_descriptors(before).inspect }
  end

  # Where a strand (a fiber, or a thread of plain Ruby) is when it is killed.
  KILLED_INSIDE = {
    nothing: ->(&wait) { wait.call },
    enumerator: ->(&wait) { Enumerator.new { |_| wait.call }.next },
    waiting_enumerator: ->(&wait) { Enumerator.new { |_| begin; wait.call; ensure; sleep 0.001; end }.next },
    fiber: ->(&wait) { Fiber.new { wait.call }.resume },
    nested: ->(&wait) { Fiber.new { begin; Enumerator.new { |_| wait.call }.next; ensure; sleep 0.001; end }.resume },
    rescue: ->(&wait) { Fiber.new { wait.call rescue nil }.resume },
  }.freeze

  WAYS_TO_KILL = {
    kill: ->(fiber, scheduler) { fiber.kill; scheduler.run },
    kill_by_a_fiber: ->(fiber, scheduler) { Fiber.schedule { sleep 0.001; fiber.kill }; scheduler.run },
    cancel: ->(_, scheduler) { scheduler.cancel; scheduler.run },
    cancel_fiber: ->(fiber, scheduler) { Fiber.schedule { sleep 0.001; 2.times { scheduler.cancel_fiber(fiber, nil); sleep 0.001 } }; scheduler.run },
  }.freeze

  def killed_inside(inside, log)
    queue = Thread::Queue.new
    begin
      inside.call { queue.pop }
    ensure
      3.times { |i| sleep 0.001; log << i }
      log << queue.pop(timeout: 0.001)
      Thread.new { log << :joined }.join
    end
    log << :went_on
  end

  def test_the_ensure_clauses_of_a_killed_fiber_wait_wherever_it_was_killed
    KILLED_INSIDE.each do |name, inside|
      expected = []
      run_plain { until_asleep(Thread.new { killed_inside(inside, expected) }).kill.join }
      assert_equal [0, 1, 2, nil, :joined], expected, "plain Ruby, #{name}"
      WAYS_TO_KILL.each do |way, kill|
        log = []
        run_scheduler do |scheduler|
          fiber = Fiber.schedule { killed_inside(inside, log) }
          Fiber.schedule { sleep 0.0005 until log.include?(:joined) || !fiber.alive? }
          kill.call(fiber, scheduler)
        end
        assert_equal expected, log, "#{way} inside #{name}"
      end
    end
  end

  # An error ends the kill, and the fiber continues.
  def outliving_a_kill(log)
    begin
      begin
        yield
      ensure
        raise IOError
      end
    rescue IOError
      log << :rescued
    end
    Fiber.new { nil }.resume
    log << :went_on
  end

  # The error ends the kill of a thread. The VM repeats that of a fiber.
  def test_a_fiber_that_outlives_its_kill_is_killed_by_the_next_one_that_it_resumes_as_with_plain_fibers
    expected, home = [], Fiber.current
    Fiber.new { outliving_a_kill(expected) { home.transfer } }.tap(&:transfer).kill
    WAYS_TO_KILL.except(:cancel, :cancel_fiber).each do |way, kill|
      log = []
      run_scheduler { |scheduler| kill.call(Fiber.schedule { outliving_a_kill(log) { Thread::Queue.new.pop } }, scheduler) }
      assert_equal expected, log, way
    end
  end

  # The strand resumes a fiber whose ensure clause raises when the strand is killed there.
  def killed_around_an_error(log, &wait)
    Fiber.new do
      wait.call
    ensure
      log << :inner
      raise IOError
    end.resume
  rescue IOError
    log << :rescued
  ensure
    log << :outer
  end

  # The VM raises the kill again where the killed fiber resumed the other one. In a thread, the error would replace the kill.
  def test_an_error_of_a_fiber_that_a_killed_one_has_resumed_is_lost_as_with_plain_fibers
    expected, home = [], Fiber.current
    Fiber.new { killed_around_an_error(expected) { home.transfer } }.tap(&:transfer).kill
    WAYS_TO_KILL.except(:cancel).each do |way, kill|
      log = []
      run_scheduler do |scheduler|
        fiber = Fiber.schedule { killed_around_an_error(log) { Thread::Queue.new.pop } }
        Fiber.schedule { sleep 0.0005 while fiber.alive? }
        kill.call(fiber, scheduler)
      end
      assert_equal expected, log, way
    end
  end
end

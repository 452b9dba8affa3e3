# frozen_string_literal: true

require_relative "helper"

# The fiber hook: Fiber.schedule, Fiber#raise, Fiber#kill and the end of fibers.
class TestFiber < ReactorTest
  def test_schedule_returns_the_non_blocking_fiber_of_its_block
    run_scheduler do
      inside = nil
      fiber = Fiber.schedule { sleep 0; inside = Fiber.current }
      assert_predicate fiber, :alive?
      refute_predicate fiber, :blocking?
      Fiber.scheduler.run
      assert_same fiber, inside
      refute_predicate Fiber.schedule { nil }, :alive?
      assert_raises(ArgumentError) { Fiber.schedule }
    end
  end

  # CRuby's reference scheduler does not return to the caller here.
  def test_a_fiber_that_schedules_a_fiber_continues_when_that_one_parks
    log = []
    done = Queue.new
    in_fiber do
      Fiber.schedule { log << :child; done.pop; log << :child_done }
      log << :parent
      sleep 0.001
      log << :parent_done
      done << true
    end
    assert_equal %i[child parent parent_done child_done], log
  end

  # A fiber that ends returns to the root fiber. The fiber that scheduled it must run before the root fiber continues.
  def test_a_fiber_continues_when_a_fiber_that_it_has_scheduled_ends
    run_scheduler do
      log = []
      Fiber.schedule { Fiber.schedule { log << :child }; log << :parent }
      assert_equal %i[child parent], log, "a fiber runs until it parks"
    end
  end

  def test_ready_fibers_run_in_turn
    log = []
    run_scheduler do
      3.times { |i| Fiber.schedule { 3.times { |n| log << [n, i]; sleep 0 } } }
    end
    assert_equal 9, log.size
    3.times { |i| assert_equal [0, 1, 2], log.filter_map { |n, fiber| n if fiber == i } }
    assert_operator log.index([2, 0]), :>, log.index([1, 2]), "a fiber that yields runs after all other ready fibers"
  end

  def test_an_error_before_the_first_park_reaches_the_caller
    run_scheduler do
      error = assert_raises(IndexError) { Fiber.schedule { raise IndexError, "early" } }
      assert_equal "early", error.message
      caught = nil
      Fiber.schedule do
        Fiber.schedule { raise IndexError, "early in a fiber" }
      rescue IndexError => e
        caught = e.message
      end
      assert_equal "early in a fiber", caught
    end
  end

  def test_an_error_that_is_a_fibers_value_is_not_raised
    run_scheduler do |scheduler|
      [FiberError.new("a value"), IOError.new("another")].each do |value|
        Fiber.schedule { value }
        Fiber.schedule { sleep 0; value }
      end
      scheduler.run
    end
  end

  def test_a_second_cancel_ends_a_wait_in_ensure
    log = []
    run_scheduler do |scheduler|
      fiber = Fiber.schedule do
        sleep
      ensure
        begin
          log << :first
          sleep
        ensure
          log << :second
        end
      end
      scheduler.cancel
      run_scheduler_until(scheduler) { log == [:first] }
      scheduler.cancel
      scheduler.run
      refute fiber.alive?
    end
    assert_equal %i[first second], log
  end

  # Runs the fibers of the scheduler until the block, which runs in none of them, returns true.
  def run_scheduler_until(scheduler)
    Fiber.blocking { Fiber.new(blocking: false) { scheduler.kernel_sleep(0.001) until yield }.resume }
  end

  def test_blocking_fibers_call_no_hooks
    run_scheduler do |scheduler|
      called = false
      scheduler.define_singleton_method(:kernel_sleep) { |*| called = true }
      Fiber.new(blocking: true) { sleep 0.001 }.resume
      Fiber.schedule { Fiber.blocking { sleep 0.001 } }
      refute called
    end
  end
end

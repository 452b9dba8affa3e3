# frozen_string_literal: true

require_relative "helper"

# Urgent data is what IO#wait with IO::PRIORITY waits for. Neither a hang-up nor a regular file, which the kernel does not poll,
# has any.
class TestUrgentData < ReactorTest
  def test_a_wait_for_urgent_data_of_a_file_ends_by_its_time_or_by_another_io
    r, w = pipe
    log = []
    run_scheduler do |scheduler|
      File.open(__FILE__) do |file|
        Fiber.schedule { log << IO.select([r], nil, [file]).map(&:size) }
        Fiber.schedule { log << file.wait_priority }.then { |fiber| @waiting = fiber }
        Fiber.schedule do
          until_parked(scheduler, 2)
          w << "x"
          assert eventually { log.any? }
          log << file.wait_priority(0.001) << IO.select(nil, nil, [file], 0.001)
          log << file.wait(IO::READABLE | IO::PRIORITY, 1)
          @waiting.kill
        end
        scheduler.run
      end
    end
    assert_equal [[1, 0, 0], nil, nil, IO::READABLE], log
  end

  def test_a_wait_for_urgent_data_of_a_file_ends_when_the_file_is_closed
    file = File.open(__FILE__)
    got = nil
    run_scheduler do |scheduler|
      Fiber.schedule { got = outcome { file.wait_priority } }
      Fiber.schedule do
        until_parked(scheduler, 1)
        file.close
      end
    end
    assert_equal [:raised, IOError], got
  end

  def test_a_hang_up_ends_a_wait_for_urgent_data_and_is_none
    skip "no urgent data with kqueue and on Windows" unless %i[epoll uring poll].include?(BACKEND)
    [0, TEST_TIMEOUT, nil].each do |limit|
      [IO::PRIORITY, IO::PRIORITY | IO::READABLE].each do |events|
        assert_as_plain([limit, events]) do
          ours, theirs = pair
          theirs.close
          [ours.wait(events, limit) || nil] # plain Ruby's IO#wait returns false here, and nil after its time
        end
      end
    end
  end

  def test_a_watcher_for_urgent_data_of_a_file_is_never_ready
    log = []
    run_scheduler do |scheduler|
      File.open(__FILE__) do |file|
        endless = scheduler.on_ready(file, IO::PRIORITY) { log << :ready }
        scheduler.on_ready(file, IO::PRIORITY, timeout: 0.001) { |events| log << events }
        Fiber.schedule { log << :other until log.include?(nil) || sleep(0.001).nil? }
        Fiber.schedule { sleep 0.001 until log.include?(nil); file.close; log << endless.ended }
        scheduler.run
      end
    end
    assert_equal [nil, :closed], log - [:other]
  end
end

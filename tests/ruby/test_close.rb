# frozen_string_literal: true

require_relative "helper"

# IO#close under fibers that wait: just these get their IOError, on every Ruby and whoever closes.
class TestClose < ReactorTest
  MESSAGE = "stream closed in another thread"

  # Longer than any look of the registry's own takes.
  LONG = 0.25

  def closed
    yield
    :returned
  rescue IOError => e
    e.message
  end

  def test_a_fiber_closes_what_others_wait_for
    log = []
    run_scheduler do
      [pipe, pair, tcp_pair].each do |reading, _|
        Fiber.schedule { log << closed { reading.readpartial(1) } }
        Fiber.schedule { log << closed { reading.wait_readable } }
      end
      ios = @ios.dup
      Fiber.schedule { sleep LONG; ios.each(&:close) }
    end
    assert_equal [MESSAGE] * 6, log
  end

  def test_another_thread_closes
    log = []
    reading, = pair
    run_scheduler do
      Fiber.schedule { log << closed { reading.readpartial(1) } }
      Thread.new { sleep LONG; reading.close }
    end
    assert_equal [MESSAGE], log
  end

  def test_accept_and_recvfrom
    log = []
    server = track(TCPServer.new("127.0.0.1", 0))
    socket = track(UDPSocket.new.tap { |udp| udp.bind("127.0.0.1", 0) })
    run_scheduler do
      Fiber.schedule { log << closed { server.accept } }
      Fiber.schedule { log << closed { socket.recvfrom(1) } }
      Fiber.schedule { sleep LONG; server.close; socket.close }
    end
    assert_equal [MESSAGE] * 2, log
  end

  def test_select_is_told_too
    log = []
    first, second = pair, pair
    run_scheduler do
      Fiber.schedule { log << outcome { IO.select([first[0], second[0]]) } }
      Fiber.schedule { sleep LONG; second[0].close }
    end
    assert_equal [[:raised, IOError]], log
  end

  def test_another_object_on_the_same_descriptor_is_left_alone
    log = []
    reading, writing = pair
    twin = UNIXSocket.for_fd(reading.fileno).tap { |io| io.autoclose = false }
    run_scheduler do
      Fiber.schedule { log << twin.readpartial(1) }
      Fiber.schedule { log << closed { reading.readpartial(1) } }
      Fiber.schedule do
        sleep 0.01
        reading.autoclose = false # the descriptor stays open: only the object goes
        reading.close
        writing << "x"
      end
    end
    assert_equal [MESSAGE, "x"], log.sort_by(&:size).reverse
  ensure
    IO.for_fd(twin.fileno).close if twin && !twin.closed?
  end

  def test_waiters_of_other_ios_and_a_recycled_number_are_left_alone
    log = []
    run_scheduler do
      others = Array.new(50) { pair }
      others.each { |left, _| Fiber.schedule { log << left.readpartial(1) } }
      reading, = pair
      Fiber.schedule { closed { reading.readpartial(1) } }
      Fiber.schedule do
        sleep 0.01
        number = reading.fileno
        reading.close
        sleep 0
        recycled = pair
        assert_includes recycled.map(&:fileno), number
        Fiber.schedule { log << recycled[0].readpartial(1) }
        recycled[1] << "r"
        others.each { |_, right| right << "o" }
      end
    end
    assert_equal ["o"] * 50 + ["r"], log.sort
  end

  def test_nothing_is_changed_without_a_scheduler
    out = child_says("p IO.ancestors.first; Reactor::Scheduler.new.close; p IO.ancestors.first")
    assert_equal "IO\nReactor::Closing\n", out
  end
end

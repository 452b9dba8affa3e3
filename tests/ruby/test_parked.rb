# frozen_string_literal: true

require_relative "helper"

# Ten thousand fibers, each parked on a socket of its own.
class TestParked < ReactorTest
  WANTED = 10_000

  def test_ten_thousand_fibers_parked_on_sockets
    needs_linux "resident memory from /proc"
    soft, hard = Process.getrlimit(:NOFILE)
    count = [WANTED, [hard, 1 << 30].min - 200].min
    skip "the hard limit of open descriptors is #{hard} (raise it with ulimit -Hn)" if count < WANTED
    out = child_says(<<~'RUBY', count, [soft, count + 200].max, within: 120)
      require "socket"
      count, limit = ARGV.map(&:to_i)
      Process.setrlimit(:NOFILE, limit)
      cpu = -> { Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) }
      rss = -> { GC.start; File.read("/proc/self/status")[/VmRSS:\s+(\d+)/, 1].to_i * 1024 }
      sockets = Array.new(count) { UDPSocket.new.tap { |s| s.bind("127.0.0.1", 0) } }
      ports = sockets.map { |s| s.addr[1] }
      woken = []
      Fiber.set_scheduler(scheduler = Reactor::Scheduler.new)
      before = rss.()
      slices = sockets.each_with_index.each_slice((count + 99) / 100).map do |slice|
        start = cpu.()
        slice.each { |socket, i| Fiber.schedule { socket.wait_readable; woken << i if socket.recv(20) == i.to_s } }
        cpu.() - start
      end
      medians = [slices.first(20), slices.last(20)].map { |list| list.sort[10] } # a collection makes a few of them slow
      memory = rss.() - before
      sender = UDPSocket.new
      ports.each_slice(500).with_index do |part, n|
        Fiber.schedule { part.each_with_index { |port, i| sender.send((n * 500 + i).to_s, 0, "127.0.0.1", port) } }
      end
      scheduler.run
      puts woken.sort == (0...count).to_a, memory / count, medians
    RUBY
    all, bytes, first, last = out.split
    assert_equal "true", all
    assert_operator bytes.to_i, :<, 100_000
    # IO.select passes every descriptor at every call, so its cost grows with their number.
    assert_operator last.to_f, :<, first.to_f * 3 + 0.001, "quadratic set-up" unless select_backend?
  end
end

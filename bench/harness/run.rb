# frozen_string_literal: true

require "json"

module Bench
  # What a workload sees of the harness: tasks, which are fibers or threads; the section that is measured; programs outside.
  #
  # A body is called in a task of its own. If a task raises, the whole run fails at once.
  class Run
    WARM_UP = 10 # the warm-up is this part of the measured number of operations

    attr_reader :operations, :point

    # @param style [:fibers, :threads, :plain]
    def initialize(style, operations, point)
      @style = style
      @operations = operations
      @point = point
      @report = {}
    end

    def threads? = @style == :threads

    # Starts a task, watched: an error in it fails the run.
    def spawn(&block)
      start do
        block.call
      rescue Exception => error # rubocop:disable Lint/RescueException -- every exception fails the run
        give_up(error)
      end
    end

    # Starts a task with nothing around it, for the workloads that measure just this.
    def start(&) = threads? ? Thread.new(&) : Fiber.schedule(&)

    # Runs count tasks to their end.
    def together(count)
      ended = Thread::Queue.new
      count.times do |index|
        spawn do
          yield index
          ended << index
        end
      end
      count.times { ended.pop }
    end

    # Yields what each of count tasks is to call at its end, and returns when all have.
    def finished(count)
      left = count
      last = Thread::Queue.new
      yield(proc { last << nil if (left -= 1).zero? })
      last.pop
      check(left, 0, "tasks left")
    end

    # Shares operations out among tasks and runs them to their end: yields each one's index and its part.
    def share(operations, tasks)
      together(tasks) { |index| yield index, (operations / tasks) + (index < operations % tasks ? 1 : 0) }
    end

    # The measured section. The block is called with a number of operations to make: first with a tenth of them to warm
    # up, then with all. `prepare` is called before each, unmeasured, and what it returns is the block's second argument.
    def measure(operations = @operations, prepare: nil, warm_up: (operations / WARM_UP).clamp(1, nil))
      yield warm_up, prepare&.call(warm_up) if warm_up.positive?
      prepared = prepare&.call(operations)
      GC.start
      before = Usage.now
      yield operations, prepared
      report(operations: operations, **Usage.since(before))
    end

    # Measures operations that are shared out: each of the clients is yielded with its part, in a task of its own.
    def share_measured(clients, operations = @operations)
      measure(operations) do |count|
        share(count, clients.size) { |index, part| yield clients[index], part }
      end
    end

    # What has been reported under a name.
    def [](name) = @report.fetch(name)

    # Adds to what this run reports, or replaces what was measured.
    def report(**values) = @report.update(values)

    # Reports how long each of many waits took, in microseconds.
    def latencies(microseconds)
      check(microseconds.size, operations, "latencies")
      check(microseconds.min.positive?, true, "a message that came before it was sent")
      report(**Bench.latencies(microseconds))
    end

    # For a workload to verify what it has done: bytes, counts.
    def check(got, expected, what)
      raise "wrong result: #{what}: #{got.inspect} instead of #{expected.inspect}" unless got == expected
    end

    # Asks the harness, which is another process, to run one of its programs (load, ping); returns its first line.
    def outside(program, *arguments)
      asks = IO.for_fd(4, "w", autoclose: false)
      asks.sync = true
      asks.write("#{JSON.generate([program, *arguments])}\n")
      answer = JSON.parse(IO.for_fd(3, "r", autoclose: false).gets || raise("the harness went away"), symbolize_names: true)
      raise "#{program} failed: #{answer[:error]}" if answer[:error]

      answer
    end

    # A listener on a free port of this machine. Its backlog holds every connection of a workload.
    # @param address [String] 0.0.0.0 for more connections than one loopback address has ports for: ping takes several
    def listener(address = "127.0.0.1") = TCPServer.new(address, 0).tap { |server| server.listen(4096) }

    # Both ends of a TCP connection through a listener, without delay for small writes.
    def tcp_pair(listener)
      client = TCPSocket.new("127.0.0.1", listener.local_address.ip_port)
      [client, listener.accept].each { |socket| socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1) }
    end

    # Client ends of TCP connections; each server end is yielded in a task of its own.
    def clients(count)
      server = listener
      Array.new(count) do
        near, far = tcp_pair(server)
        spawn { yield far }
        near
      end
    end

    # Prints the report and exits, also if fibers are still parked.
    def finish
      raise "nothing was measured" if @report.empty?

      $stdout.puts JSON.generate(@report)
      $stdout.flush
      exit!(0)
    end

    def give_up(error)
      $stderr.puts "#{error.class}: #{error.message}", error.backtrace.to_a.first(6)
      exit!(1)
    end
  end
end

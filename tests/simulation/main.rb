# frozen_string_literal: true

require_relative "bug"
require_relative "../ruby/seeds"

# The command line of bin/check simulation: see tests/simulation/check.
module Simulations
  DAY = 86_400

  module_function

  # @return [Float] seconds of CPU that the block takes
  def cpu
    from = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
    yield
    Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - from
  end

  # @yield [seed] an error that is raised is a failure
  # @return [Seeds] after the run
  def tried(options)
    seeds = Seeds.new(**options)
    seeds.run do |seed|
      yield seed
    rescue StandardError => error
      seeds.failed("#{error.class}: #{error.message[/\A[^\n]*/]}", seed)
    end
    seeds
  end

  # @return [Boolean]
  def bugs(options, word)
    Bugs::ALL.each_key.select { |name| name.include?(word) }.map do |name|
      found, wrong = [false, true].map { |mended| tried(options) { |seed| Bugs.simulate(name, mended, seed: seed) } }
      found, wrong, of = found.failed_times, wrong.failed_times, found.begun
      puts format("%-20s %6d of %d seeds; mended: %d; the first, shrunk: %s", name, found, of, wrong, first(name, options))
      found.positive? && wrong.zero?
    end.all?
  end

  def first(name, options)
    Bugs.explore(name, false, runs: options[:count], seed: options[:seed])
  rescue StandardError => error
    "#{error.message[/\A[^\n]*/]} (#{error.message[/\(simulated with (.*)\)$/, 1]})"
  end

  def programs(options, word)
    require_relative "programs"
    Programs::ALL.select { |name| name.to_s.include?(word) }.map do |name|
      seeds = nil
      run = ->(seed) { Reactor::Testing.simulate(seed: seed, twice: true) { |world| Programs.public_send(name, world) } }
      seconds = cpu { seeds = tried(options, &run) }
      puts format("%-20s %6d of %d seeds fail, %.0f s of CPU", name, seeds.failed_times, seeds.begun, seconds)
      puts seeds.report { |seed| "bin/check simulation programs 1 #{name} --seed #{seed}" }
      seeds.failures.empty?
    end.all?
  end

  def speed
    trace = nil
    seconds = cpu { trace = day(100) }
    puts format("a virtual day of 100 clients that ask once a minute: %.1f s of CPU, %d events", seconds, trace.size)
    simulated, real = [:simulated, :real].map { |way| message(way) }
    puts format("a message and its answer: simulated %.1f us, real %.1f us of CPU", simulated * 1e6, real * 1e6)
    true
  end

  # Each client keeps its connection until it fails.
  def day(clients)
    Reactor::Testing.simulate(seed: 1, until: DAY) do |world|
      world.link(latency: 0.001..0.05, drop: 0.001, reset: 0.0001, split: 0.001)
      Bugs.serve(world, "server") { |line| line }
      clients.times do |i|
        world.host("client #{i}") do
          socket = nil
          loop do
            sleep 60
            socket ||= TCPSocket.new("server", 80)
            socket.puts("question")
            socket.gets or raise EOFError
          rescue SystemCallError, EOFError
            socket&.close
            socket = nil
          end
        end
      end
    end
  end

  MESSAGES = 5_000

  # @return [Float] seconds for a message and its answer
  def message(way)
    exchange = lambda do |socket|
      MESSAGES.times do
        socket.write("x" * 64)
        socket.readpartial(64)
      end
      socket.close
    end
    echo = ->(listener) { loop { Fiber.schedule(listener.accept) { |socket| IO.copy_stream(socket, socket); socket.close } } }
    return cpu { simulated(echo, exchange) } / MESSAGES if way == :simulated

    cpu do
      Reactor.run do
        listener = TCPServer.new("127.0.0.1", 0)
        serving = Fiber.schedule { echo.call(listener) }
        exchange.call(TCPSocket.new("127.0.0.1", listener.addr[1]))
        Fiber.scheduler.cancel_fiber(serving, nil)
      end
    end / MESSAGES
  end

  def simulated(echo, exchange)
    Reactor::Testing.simulate(seed: 1) do |world|
      world.host("server") { echo.call(TCPServer.new("server", 80)) }
      world.client("client") { exchange.call(TCPSocket.new("server", 80)) }
    end
  end
end

options = Seeds.options(ARGV, seed: 0)
command, seeds, word = ARGV
done =
  case command
  when "bugs", "programs" then Simulations.public_send(command, { **options, count: Integer(seeds || 1_000) }, word.to_s)
  when "speed" then Simulations.speed
  else abort File.read(File.join(__dir__, "check"))[/^# .*?\n\n|^# .*?(?=^set)/m]
  end
exit(done)

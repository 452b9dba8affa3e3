# frozen_string_literal: true

# The measurements of schedulers as a Prometheus text page.
#   ruby -Ilib examples/metrics.rb [PORT]
# serves the page. In your own program, call Metrics.new(Fiber.scheduler, …).page in the handler of GET /metrics, with the
# schedulers of all threads. Stop the server by SIGTERM or Ctrl-C.
require "reactor"
require "socket"

class Metrics
  TYPE = "text/plain; version=0.0.4; charset=utf-8"
  # Bounds in seconds: powers of two in microseconds, from 16 us to 16.8 s, which are bucket limits of Reactor::Histogram.
  BOUNDS = (4..24).step(2).map { |power| 2**power / 1e6 }.freeze

  COUNTERS = { # name => [help, statistic, divisor]
    "reactor_loop_awake_seconds_total" => ["Time in which the loop was not asleep.", :awake_ns, 1e9],
    "reactor_loop_asleep_seconds_total" => ["Time in which the loop slept.", :asleep_ns, 1e9],
    "reactor_loop_gc_seconds_total" => ["Garbage collection while the loop was not asleep.", :gc_ns, 1e9],
    "reactor_loop_turns_total" => ["Polls of the kernel.", :turns, 1],
    "reactor_loop_stalls_total" => ["Fibers that held the loop too long, if stall: was given.", :stalls, 1],
    "reactor_fibers_started_total" => ["Fibers made by Fiber.schedule.", :fibers, 1],
    "reactor_waits_total" => ["Waits begun by fibers.", :parks, 1],
    "reactor_switches_total" => ["Times that control was given to a waiting fiber.", :switches, 1]
  }.freeze
  GAUGES = {
    "reactor_fibers" => ["Fibers made by Fiber.schedule that have not finished.", :live],
    "reactor_ready_queue_length" => ["Entries of the ready queue.", :ready],
    "reactor_timers" => ["Timers that are set.", :timers],
    "reactor_watchers" => ["Waits of on_ready that go on.", :watchers],
    "reactor_worker_threads" => ["Threads for offloaded work.", :offload_threads]
  }.freeze
  HISTOGRAMS = {
    "reactor_loop_turn_seconds" => ["Time from one poll of the kernel to the next.", :turns],
    "reactor_timer_lateness_seconds" => ["How late sleeps and timeouts ended.", :lateness],
    "reactor_work_queue_seconds" => ["Time for which work waited for a thread.", :queue]
  }.freeze

  # @param schedulers [Array<Reactor::Scheduler>]
  def initialize(*schedulers)
    @schedulers = schedulers
  end

  # @return [String] the page
  def page
    readings = @schedulers.reject(&:closed?).map { |one| [labels(one), one.health] }
    (counters(readings) + gauges(readings) + histograms(readings)).join("\n") << "\n"
  end

  private

  def labels(scheduler) = { scheduler: scheduler.object_id.to_s, backend: scheduler.backend.to_s }

  def counters(readings)
    COUNTERS.flat_map do |name, (help, key, divisor)|
      family(name, "counter", help, readings.map { |labels, health| sample(name, labels, health.stats.fetch(key) / divisor) })
    end
  end

  def gauges(readings)
    waiting = readings.flat_map do |labels, health|
      health.waits.map { |hook, count| sample("reactor_fibers_waiting", labels.merge(hook: hook), count) }
    end
    GAUGES.flat_map do |name, (help, key)|
      family(name, "gauge", help, readings.map { |labels, health| sample(name, labels, health.stats.fetch(key)) })
    end + family("reactor_fibers_waiting", "gauge", "Fibers that wait, by what they wait in.", waiting)
  end

  def histograms(readings)
    HISTOGRAMS.flat_map do |name, (help, part)|
      family(name, "histogram", help, readings.flat_map { |labels, health| buckets(name, labels, health.public_send(part)) })
    end
  end

  def buckets(name, labels, histogram)
    BOUNDS.map { |bound| sample("#{name}_bucket", labels.merge(le: bound), histogram.below(bound)) } <<
      sample("#{name}_bucket", labels.merge(le: "+Inf"), histogram.count) <<
      sample("#{name}_sum", labels, histogram.sum) <<
      sample("#{name}_count", labels, histogram.count)
  end

  def family(name, type, help, samples) = ["# HELP #{name} #{help}", "# TYPE #{name} #{type}", *samples]

  def sample(name, labels, value) = "#{name}{#{labels.map { |label, text| "#{label}=\"#{text}\"" }.join(",")}} #{value}"
end

if $PROGRAM_NAME == __FILE__
  listener = TCPServer.new("127.0.0.1", ARGV.first.to_i)
  Fiber.set_scheduler(Reactor::Scheduler.new)
  metrics = Metrics.new(Fiber.scheduler)
  server = Reactor::Server.new(listener) do |socket|
    path = socket.gets&.split&.at(1)
    nil while (line = socket.gets) && line != "\r\n"
    status, body = path == "/metrics" ? ["200 OK", metrics.page] : ["404 Not Found", "see /metrics\n"]
    socket.write("HTTP/1.1 #{status}\r\nContent-Type: #{Metrics::TYPE}\r\nContent-Length: #{body.bytesize}\r\nConnection: close\r\n\r\n#{body}")
    false
  end
  trap("TERM") { raise Interrupt }
  server.start
  $stdout.sync = true
  puts "listening on http://127.0.0.1:#{listener.local_address.ip_port}/metrics"
  begin
    Fiber.scheduler.run
  rescue Interrupt
    nil
  end
end

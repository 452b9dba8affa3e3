# frozen_string_literal: true

require_relative "stacks"

# A time limit for hangs. On a loaded machine a process may be slow without being hung: while it or a descendant runs, or waits
# for a processor, the limit is extended, up to a maximum. Without Linux's schedstat it is a plain limit.
class TimeLimit
  MAX_EXTENSION = 10
  # The processes are idle if their threads ran or waited for a processor for less than this share of the time since the last
  # check.
  IDLE_SHARE = 0.05

  # @param seconds [Numeric] the limit of an idle process
  # @param pid [Integer] the process; its descendants are checked as well
  # @param extension [Numeric] the maximum, in limits
  def initialize(seconds, pid = Process.pid, extension: MAX_EXTENSION)
    @pid, @seconds = pid, seconds
    @limit = now + seconds
    @maximum = now + (seconds * extension)
    @window = seconds / 20.0
  end

  # Seconds until the result of #over? may change.
  def remaining = [@limit - now, 0].max

  # Whether the limit has elapsed, and the processes are idle or have used up the maximum.
  def over?
    return false if now < @limit
    return true if @seconds.zero? || now >= @maximum

    idle_since_last_look? || extend_limit
  end

  # Calls the block until it returns something true, or the limit elapses. The last call is made after that, because this process
  # may have had no processor since the previous call, while the awaited processes ended.
  #
  # @return the last result of the block
  def until
    nil until (answer = yield) || over?
    answer || yield
  end

  private

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def extend_limit
    @looked_at, @demand = now, demand
    @limit = [now + @window, @maximum].min
    false
  end

  def idle_since_last_look?
    return false if @demand.nil? || at_work?

    used = demand.sum { |thread, nanoseconds| nanoseconds - @demand.fetch(thread, 0) }
    used / 1e9 < (now - @looked_at) * IDLE_SHARE
  end

  # Nanoseconds for which each thread ran or waited for a processor (Documentation/scheduler/sched-stats.rst).
  def demand
    threads.to_h { |thread| [thread, (File.read("#{thread}/schedstat").split.first(2).sum(&:to_i) rescue 0)] }
  end

  # Whether a thread other than this one runs, waits for a processor (R), or waits for a disk (D). A wait for a processor is
  # counted only when it has ended, and a wait for a disk never.
  def at_work?
    (threads - ["/proc/#{Process.pid}/task/#{Thread.current.native_thread_id}"]).any? do |thread|
      %w[R D].include?(File.read("#{thread}/stat")[/\) (\w)/, 1]) rescue false
    end
  end

  def threads = (RUBY_PLATFORM.include?("linux") ? Stacks.tree(@pid) : []).flat_map { |pid| Dir.glob("/proc/#{pid}/task/*") }
end

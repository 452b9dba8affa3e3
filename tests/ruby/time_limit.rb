# frozen_string_literal: true

require_relative "stacks"

# A time limit for hangs. On a loaded machine a process is slow without being hung: while it or a descendant runs, or waits for a
# processor, the limit is extended, up to a maximum. Without Linux's schedstat it is a plain limit.
class TimeLimit
  MAX_EXTENSION = 10
  # Below this share of the time since the last look, in which threads ran or waited for a processor, the processes are idle.
  IDLE_SHARE = 0.05

  # @param seconds [Numeric] the limit of an idle process
  # @param pid [Integer] the process; its descendants are looked at as well
  # @param extension [Numeric] the maximum, in limits
  def initialize(seconds, pid = Process.pid, extension: MAX_EXTENSION)
    @pid, @seconds = pid, seconds
    @limit = now + seconds
    @maximum = now + (seconds * extension)
    @window = seconds / 20.0
  end

  # Seconds until the answer of #over? may change.
  def remaining = [@limit - now, 0].max

  # Whether the processes are idle, or used up the maximum, and their time is over.
  def over?
    return false if now < @limit
    return true if @seconds.zero? || now >= @maximum

    idle_since_last_look? || extend_limit
  end

  # Calls the block until it returns something true, or the time is over. The last call is made when it is over, because this process may
  # have had no processor since the call before, in which the processes that are waited for ended.
  #
  # @return what the block returned last
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

  # Nanoseconds that each thread has run or waited for a processor (Documentation/scheduler/sched-stats.rst).
  def demand
    threads.to_h { |thread| [thread, (File.read("#{thread}/schedstat").split.first(2).sum(&:to_i) rescue 0)] }
  end

  # Whether a thread other than this one runs, waits for a processor (R), or waits for a disk (D). The wait for a processor is
  # counted when it is over, and the wait for a disk never is.
  def at_work?
    (threads - ["/proc/#{Process.pid}/task/#{Thread.current.native_thread_id}"]).any? do |thread|
      %w[R D].include?(File.read("#{thread}/stat")[/\) (\w)/, 1]) rescue false
    end
  end

  def threads = (RUBY_PLATFORM.include?("linux") ? Stacks.tree(@pid) : []).flat_map { |pid| Dir.glob("/proc/#{pid}/task/*") }
end

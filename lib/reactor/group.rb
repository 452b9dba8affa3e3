# frozen_string_literal: true

require "set" # now, because a process may have no free descriptor when it opens its first group
require_relative "deadline"
require_relative "checks"
require_relative "run"
require_relative "scope"
require_relative "group/task"

module Reactor
  # A group of fibers that end together, opened by {Reactor.group}.
  #
  #   Reactor.group(limit: 5, timeout: 2) do |group|
  #     group.async { fetch(a) }
  #     group.async { fetch(b) }
  #     group.results # => what both have returned, in this order
  #   end
  #
  # No task outlives its group. If a task or the block raises, the group fails: every other task is cancelled ({Task#cancel}), the
  # block ends at the call in which it waits, and when all tasks have ended, the owner raises the first error. The group also ends
  # this way when its timeout elapses (the error includes the number of unfinished tasks and the places of up to three of their
  # blocks), or when the block is left by break, throw, an exception from outside, or the end of its fiber. If a task has opened a
  # group itself, the tasks of that group end first. Only {Reactor.shield} delays any of this. A fiber of Fiber.schedule is not a
  # task: it may outlive the group.
  #
  # If there are several errors, the owner raises the first, but an error that is neither a StandardError nor a ScriptError takes
  # precedence. The other errors are passed to `on_error` or reported, like an error of a fiber ({Lifecycle#run}). {#errors} has
  # all of them.
  #
  # A group belongs to one thread. Its fibers and any other fibers of its scheduler may use it.
  class Group
    # @api private
    def initialize(scheduler, limit, timeout, discard)
      @scheduler = scheduler
      @timeout = timeout
      @places = Thread::SizedQueue.new(limit) if limit # has an element for each running task
      @thread = Thread.current
      @scope = Scope.new(scheduler) { too_late }
      @running = {}.compare_by_identity
      @awaited = 0 # number of running tasks that are not transient
      @errors = Set.new.compare_by_identity
      @closed = false
      @tasks = [] unless discard
      @ended = [] unless discard # ended tasks that #first has not taken, in order
    end

    # Runs a block in a new fiber, at once, until its first wait. At the limit of running tasks, waits until one has ended.
    #
    # A transient task serves the others. The group does not wait for it, but cancels it when the block and all other tasks have
    # ended. It does not count towards the limit, and is not included in {#results} and {#first}. Its error fails the group like
    # any other.
    #
    # @param arguments passed to the block
    # @param transient [Boolean]
    # @return [Task]
    # @raise [ThreadError] called on another thread
    # @raise [RuntimeError] the group is failing, or has ended
    # @raise [ArgumentError] no block given
    def async(*arguments, transient: false, &block) = launch(block, arguments, transient ? :transient : nil)

    # Waits until only transient tasks are running.
    #
    # @return [self]
    # @raise [ThreadError] called on another thread, or by a task of the group
    def wait
      forbid_own_tasks
      wait_for_tasks
      self
    end

    # Waits for every task.
    #
    # @return [Array] the results of the tasks, in the order of {#async}; nil for a cancelled task
    # @raise [ThreadError] as {#wait}
    # @raise [RuntimeError] the group discards its results
    # @raise [Exception] as {Task#value}
    def results
      forbid_own_tasks
      kept(@tasks).map(&:value)
    end

    # Waits for the first task to complete, and cancels the others. If several fibers call this, each ended task is given to only
    # one of them.
    #
    # @yieldparam value the result of a task
    # @yieldreturn [Boolean] whether to accept it; without a block, any value is accepted
    # @return the first accepted value, or nil
    # @raise [Exception] as {#results}
    def first
      forbid_own_tasks
      while (task = next_ended)
        next unless task.state == :completed && (!block_given? || yield(task.value))

        cancel(:lost)
        return task.value
      end
      refuse if @errors.any?
    end

    # Calls the block for each element in a separate task, and waits for these tasks.
    #
    # @param elements [Enumerable] the next element is fetched only when its task can start
    # @return [Array] the results of the block, in the order of the elements
    # @raise [Exception] as {#async} and {Task#value}
    def map(elements, &block) = launch_each(elements, block).map(&:value)

    # Like {#map}, but an error of one of these tasks fails the group only if it is neither a StandardError nor a ScriptError.
    #
    #   group.settle(urls, timeout: 2) { |url| fetch(url) }.partition(&:error)
    #
    # @param timeout [Numeric, nil] seconds for all tasks together: a task that has not finished by then, or starts later, ends at
    #   the call in which it waits, and its error is a {DeadlineExceeded}; nil: no limit
    # @return [Array<Task>] the ended tasks, in the order of the elements. They are not included in {#results} and {#first}.
    # @raise [TypeError] timeout is not a number
    # @raise [Exception] as {#async}
    def settle(elements, timeout: nil, &block)
      seconds = Checks.limit(:timeout, timeout)
      finish = Clock.now + seconds if seconds
      in_time = ->(*element) { Deadline.new(seconds, block, finish).run { block.call(*element) } } if block && finish
      launch_each(elements, in_time || block, :settled, block).each(&:join)
    end

    # Calls the block for each element in a separate task, until one has completed. Then the other tasks are cancelled, and so is a
    # wait of `elements.each`. Errors are treated as in {#settle}, and dropped if a task completes.
    #
    # @return the first result of the block; nil if there are no elements, or if all tasks were cancelled
    # @raise [Exception] the error of the first element that has one, if no task completes
    # @raise [Exception] as {#async}
    def any(elements, &block)
      raise ArgumentError, "no block given" unless block

      tasks = []
      first = nil
      source = Scope.new(@scheduler)
      attempt = lambda do |*element|
        next if first

        value = block.call(*element)
        next if first

        first = [value]
        source.cancel(:lost)
        tasks.each { |task| task.cancel(:lost) unless task.runs_here? }
      end
      begin
        source.run { elements.each { |*element| first ? break : launch(attempt, element, :settled, block, tasks) } }
      rescue Cancelled => error
        raise unless error.equal?(source.cancelled)
      end
      tasks.each(&:join)
      return first[0] if first

      error = tasks.find(&:error)&.error
      raise error, cause: error.cause if error
    ensure
      tasks&.each { |task| task.cancel(:left) }
    end

    # Cancels all running tasks; see {Task#cancel}. A task that calls this ends as well. Tasks may be started after this.
    #
    # @param reason for {Task#reason}
    # @return [self]
    # @raise [ThreadError] called on another thread
    def cancel(reason = nil)
      check_thread
      own, others = @running.keys.partition { |task| task.runs_here? }
      (others + own).each { |task| task.cancel(reason) }
      self
    end

    # @return [Array<Exception>] the errors of tasks and block so far, in order
    def errors = @errors.to_a

    # @return [Integer] number of running tasks
    def size = @running.size

    # Runs the group's block in the current fiber.
    #
    # @api private
    def run
      begin
        value = @scope.run(@timeout) { yield(self).tap { wait_for_tasks } }
      rescue Exception => error # rubocop:disable Lint/RescueException -- raised below, when all tasks have ended
        error.equal?(@scope.cancelled) ? close(error.reason) : fail_with(error)
        end_tasks # here, so that no other ending comes meanwhile
      ensure
        end_tasks
      end
      raised = @errors.find { |each| !ordinary?(each) } || @errors.first
      raised ||= @scope.cancelled.reason if error
      raise raised, cause: raised.cause if raised

      value
    ensure
      told = $!.is_a?(Cancelled) ? $!.reason : $! # the block around this one will raise it
      report(@errors.reject { |each| each.equal?($!) || each.equal?(told) || each.is_a?(Cancelled) })
    end

    # Called by the task's fiber when the task has ended.
    #
    # @api private
    def ended(task)
      forget(task)
      error = task.error
      fail_with(error) unless error.nil? || (task.kind == :settled && ordinary?(error))
    end

    # @return [Scope] of the block
    # @api private
    attr_reader :scope

    # @api private
    def check_thread
      raise ThreadError, "this group belongs to another thread" unless Thread.current.equal?(@thread)
    end

    # @return [String] includes the number of running tasks
    def inspect = "#<#{self.class} #{@running.size} running#{", ended" if @closed}>"

    private

    # An exception from outside or a kill that arrives meanwhile takes effect when the tasks have ended.
    def end_tasks
      close(:left)
      next_idle until (ended = @running.empty? || @scheduler.forked_child?)
    ensure
      end_tasks unless ended
    end

    # The tasks of the parent do not run in a forked child.
    def idle? = @awaited.zero? || @scheduler.forked_child?

    def wait_for_tasks
      next_idle until idle?
    end

    def next_idle = (@idle ||= Thread::Queue.new).pop

    # Waits for the next task to end; nil if none is left.
    def next_ended
      (@next_end ||= Thread::Queue.new).pop while kept(@ended).empty? && !idle?
      @ended.shift
    end

    def forbid_own_tasks
      check_thread
      raise ThreadError, "a task cannot wait for itself" if @running.each_key.any?(&:runs_here?)
    end

    def close(reason)
      return if @closed

      @closed = true
      cancel(reason)
    ensure
      @places&.close # only now, so that a task waiting for a place is cancelled too
    end

    def fail_with(error)
      return unless @errors.add?(error) # Task#value raises the same error again

      reason = error.is_a?(Cancelled) ? error.reason : error # a cancellation belongs to the block around this one
      @scope.cancel(reason) unless @closed
      close(reason)
    end

    # @return [DeadlineExceeded] includes the unfinished tasks, if there are any
    def too_late
      late = @running.each_key.reject { |task| task.kind == :transient }
      places = late.filter_map(&:place).uniq
      where = ": #{places.first(3).join(", ")}#{", …" if places.size > 3}" if places.any?
      what = { 0 => "the block", 1 => "1 task" }.fetch(late.size) { |count| "#{count} tasks" }
      DeadlineExceeded.new("#{what} did not finish within #{format("%g", @timeout)} s#{where}")
    end

    # However one report ends, the next error is reported.
    def report(errors)
      @scheduler.report_error(errors.shift, by: self) until errors.empty?
    ensure
      report(errors) unless errors.empty?
    end

    def ordinary?(error) = error.is_a?(StandardError) || error.is_a?(ScriptError)

    def kept(list) = list || (raise "this group discards its results")

    def refuse
      @scope.leave
      raise "this group has ended"
    end

    def take_place
      @places&.push(true)
    rescue ClosedQueueError
      raise unless @places.closed? # raised in the fiber while it waited

      @scheduler.yield # a task is cancelled here
      refuse
    end

    def launch_each(elements, body, kind = nil, block = body)
      raise ArgumentError, "no block given" unless block

      tasks = []
      elements.each { |*element| launch(body, element, kind, block, tasks) } # Enumerator::Lazy#map would run nothing
      tasks
    end

    # @param tasks [Array, nil] gets the task before the task begins
    def launch(body, arguments, kind, block = body, tasks = nil)
      check_thread
      raise ArgumentError, "no block given" unless body

      refuse if @closed
      take_place unless kind == :transient
      task = Task.new(self, @scheduler, body, arguments, kind, block)
      tasks&.push(task)
      start(task, block)
    end

    # The fiber takes its name from the block.
    def start(task, block) # rubocop:disable Lint/UnusedMethodArgument -- {FiberName.place_of} reads it
      begun = false
      @running[task] = true
      @awaited += 1 unless task.kind == :transient
      made = @scheduler.fiber do
        begun = true
        @tasks&.push(task) unless task.kind
        task.call
      end
      task
    ensure
      forget(task) unless made || begun
    end

    def forget(task)
      return unless @running.delete(task)

      unless task.kind == :transient
        @awaited -= 1
        @places&.pop(true)
      end
      @ended&.push(task) unless task.kind
      @next_end&.close # wakes all fibers waiting in #first
      @next_end = nil
      return unless @awaited.zero?

      @idle&.close
      @idle = nil
    end
  end

  class << self
    # Opens a {Group}: runs the block, waits for all tasks started in it, and returns the block's value. In a fiber without a
    # scheduler, runs all this in {Reactor.run}.
    #
    # @param limit [Integer, nil] maximum number of tasks running at once
    # @param timeout [Numeric, nil] seconds for the block and all tasks; 0 or less: elapses at the first wait
    # @param discard [Boolean] whether to forget tasks when they have ended, for a long-lived group; the group then has no
    #   {Group#results}
    # @yieldparam group [Group]
    # @return what the block returns
    # @raise the first error of a task or of the block; see {Group}
    # @raise [DeadlineExceeded] the timeout has elapsed, and all tasks have ended
    # @raise [RuntimeError] the thread has another library's scheduler
    # @raise [ArgumentError] no block given; limit is below 1
    # @raise [TypeError] limit is not an Integer; timeout is not a number
    # @raise [RangeError] limit is too large for a Thread::SizedQueue
    def group(limit: nil, timeout: nil, discard: false, &block)
      raise ArgumentError, "no block given" unless block

      limit = Checks.count(:limit, limit) unless limit.nil?
      timeout = Checks.limit(:timeout, timeout)
      scheduler = Schedulers.current
      return run { group(limit: limit, timeout: timeout, discard: discard, &block) } unless scheduler

      Group.new(scheduler, limit, timeout, discard).run(&block)
    end
  end
end

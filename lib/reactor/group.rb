# frozen_string_literal: true

require "set" # at once, because a process may have no descriptor left when it opens its first group
require "timeout"
require_relative "deadline"
require_relative "options"
require_relative "run"
require_relative "scope"
require_relative "group/task"

module Reactor
  # Fibers that end together. {Reactor.group} opens one.
  #
  #   Reactor.group(limit: 5, timeout: 2) do |group|
  #     group.async { fetch(a) }
  #     group.async { fetch(b) }
  #     group.results # => what both have returned, in this order
  #   end
  #
  # No task outlives its group. If a task or the block raises, the group fails: every other task is cancelled ({Task#cancel}), the
  # block ends at the call in which it waits, and when all tasks have ended, the owner raises this first error. The same happens when the
  # time is over (the error tells how many tasks were late, and where up to three of their blocks are), or if the block is left in
  # another way: by break, throw, an exception from outside, or the end of its fiber. If a task has opened a group itself, the tasks of
  # that group end first. Only {Reactor.shield} holds any of that back.
  #
  # Of several errors, the owner raises the first, except that one which is neither a StandardError nor a ScriptError goes first. Each
  # other one goes to `on_error`, or is reported, as the error of a fiber ({Lifecycle#run}), and {#errors} has them all.
  #
  # A group belongs to one thread. All of its fibers, and others of its scheduler, may use it.
  class Group
    # @api private
    def initialize(scheduler, limit, timeout, discard)
      @scheduler = scheduler
      @timeout = timeout
      @places = Thread::SizedQueue.new(limit) if limit # an element for each task that runs
      @thread = Thread.current
      @scope = Scope.new(scheduler, -> { too_late })
      @deadline = Deadline.here # ends the block, and so the tasks
      @running = {}.compare_by_identity
      @awaited = 0 # of these, those that are not transient
      @errors = Set.new.compare_by_identity
      @closed = false
      @tasks = [] unless discard
      @ended = [] unless discard # tasks that #first has not taken, in the order in which they ended
    end

    # Runs a block in a fiber of its own, at once, until it waits for the first time. If as many tasks run as the limit allows, this
    # waits until one has ended.
    #
    # A transient task serves the others. The group does not wait for it: it is cancelled when the block and all other tasks have ended.
    # It does not count for the limit and has no place in {#results} and {#first}. Its error fails the group, as any other's.
    #
    # @param arguments are given to the block
    # @param transient [Boolean]
    # @return [Task]
    # @raise [ThreadError] called by another thread
    # @raise [RuntimeError] the group fails, or has ended
    # @raise [ArgumentError] without a block
    def async(*arguments, transient: false, &block) = launch(block, arguments, transient ? :transient : nil)

    # Waits until no task runs but transient ones.
    #
    # @return [self]
    # @raise [ThreadError] called by another thread, or by a task of the group
    def wait
      forbid_own_tasks
      wait_for_tasks
      self
    end

    # Waits for every task.
    #
    # @return [Array] what the tasks have returned, in the order of {#async}; nil for a task that was cancelled
    # @raise [ThreadError] as {#wait}
    # @raise [RuntimeError] the group discards its results
    # @raise [Exception] as {Task#value}
    def results
      forbid_own_tasks
      kept(@tasks).map(&:value)
    end

    # Waits for the task that completes first, and cancels the others. If several fibers call this, each task goes to one of them.
    #
    # @yieldparam value what a task has returned
    # @yieldreturn [Boolean] whether it is wanted; without a block, every value is
    # @return the first value that is wanted; nil if there is none
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

    # Calls the block for each element, each in a task of its own, and waits for these tasks.
    #
    # @param elements [Enumerable] is asked for the next element when there is a place for its task
    # @return [Array] what the block has returned, in the order of the elements
    # @raise [Exception] as {#async} and {Task#value}
    def map(elements, &block) = launch_each(elements, block).map(&:value)

    # As {#map}, but an error of one of these tasks does not fail the group, unless it is neither a StandardError nor a ScriptError.
    #
    #   group.settle(urls, timeout: 2) { |url| fetch(url) }.partition(&:error)
    #
    # @param timeout [Numeric, nil] seconds for all of them: a task that is late, or begins later, ends at the call in which it waits, and has
    #   a {DeadlineExceeded} as error; nil: no limit
    # @return [Array<Task>] the tasks, which have ended, in the order of the elements. They have no place in {#results} and {#first}.
    # @raise [TypeError] timeout is no number
    # @raise [Exception] as {#async}
    def settle(elements, timeout: nil, &block)
      seconds = Options.limit(:timeout, timeout)
      finish = Clock.now + seconds if seconds
      in_time = ->(*element) { Deadline.new(seconds, block, finish).run { block.call(*element) } } if block && finish
      launch_each(elements, in_time || block, :settled, block).each(&:join)
    end

    # Calls the block for each element, each in a task of its own, until one has completed. Then the others are cancelled, and end. Errors
    # count as in {#settle}, and are dropped if a task completes.
    #
    # @return what the block has returned first; nil if there are no elements, or all tasks were cancelled
    # @raise [Exception] if no task completes: the error of the first element that has one
    # @raise [Exception] as {#async}
    def any(elements, &block)
      raise ArgumentError, "no block given" unless block

      tasks = []
      first = nil
      attempt = lambda do |*element|
        next if first

        value = block.call(*element)
        next if first

        first = [value]
        tasks.each { |task| task.cancel(:lost) unless task.runs_here? }
      end
      elements.each { |*element| first ? break : tasks << launch(attempt, element, :settled, block) }
      tasks.each(&:join)
      return first[0] if first

      error = tasks.find(&:error)&.error
      raise error, cause: error.cause if error
    ensure
      tasks&.each { |task| task.cancel(:left) }
    end

    # Cancels the tasks that run now; see {Task#cancel}. A task that calls this ends as well.
    #
    # @param reason for {Task#reason}
    # @return [self]
    # @raise [ThreadError] called by another thread
    def cancel(reason = nil)
      check_thread
      own, others = @running.keys.partition { |task| task.runs_here? }
      (others + own).each { |task| task.cancel(reason) }
      self
    end

    # @return [Array<Exception>] what tasks and the block have raised so far, the first one first
    def errors = @errors.to_a

    # @return [Integer] tasks that run
    def size = @running.size

    # Runs the block of the group in the current fiber.
    #
    # @api private
    def run(&block)
      begin
        value = supervise(&block)
      rescue Exception => error # rubocop:disable Lint/RescueException -- raised below, when all tasks have ended
        error.equal?(@scope.stop) ? close(@scope.stop.reason) : fail_with(error)
      ensure
        end_tasks
      end
      raised = @errors.find { |each| !ordinary?(each) } || @errors.first
      raised ||= @scope.stop.reason if error
      raise raised, cause: raised.cause if raised

      value
    ensure
      told = raised.is_a?(Scope::Interruption) ? raised.reason : raised # which the block around this one raises
      report(@errors.reject { |each| each.equal?(raised) || each.equal?(told) || each.is_a?(Scope::Interruption) })
    end

    # A task has ended, in its fiber.
    #
    # @api private
    def ended(task)
      forget(task)
      error = task.error
      fail_with(error) unless error.nil? || (task.kind == :settled && ordinary?(error))
    end

    # Leaves the block, if the group has failed, and the caller is the block itself.
    #
    # @api private
    def leave_block = @scope.leave

    # @api private
    def check_thread
      raise ThreadError, "this group belongs to another thread" unless Thread.current.equal?(@thread)
    end

    # @return [String] how many tasks run
    def inspect = "#<#{self.class} #{@running.size} running#{", ended" if @closed}>"

    private

    def supervise
      @scope.run(@timeout) { yield(self).tap { wait_for_tasks } }
    end

    # An exception from outside, or a kill, may come meanwhile: it goes on when the tasks have ended.
    def end_tasks
      close(:left)
      next_idle until (ended = @running.empty? || @scheduler.forked_child?)
    ensure
      end_tasks unless ended
    end

    # In a forked child, the tasks of its parent do not run.
    def idle? = @awaited.zero? || @scheduler.forked_child?

    def wait_for_tasks
      next_idle until idle?
    end

    def next_idle = (@idle ||= Thread::Queue.new).pop

    # Waits for the next task that ends; nil if none is left.
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
      @places&.close # after the cancel: a task that waits for a place is cancelled, too
    end

    def fail_with(error)
      return unless @errors.add?(error) # the same one comes again by Task#value

      reason = error.is_a?(Scope::Interruption) ? error.reason : error # the interruption of a block around this one
      @scope.interrupt(reason) unless @closed
      close(reason)
    end

    # @return [Timeout::Error] tells which tasks run, or else that the block does
    def too_late
      late = @running.each_key.reject { |task| task.kind == :transient }
      places = late.filter_map(&:place).uniq
      where = ": #{places.first(3).join(", ")}#{", …" if places.size > 3}" if places.any?
      what = { 0 => "the block was", 1 => "1 task was" }.fetch(late.size) { |count| "#{count} tasks were" }
      Timeout::Error.new("#{what} late after #{format("%g", @timeout)} s#{where}")
    end

    # Whatever ends the report of one, the next one is reported.
    def report(errors)
      @scheduler.report_error(errors.shift) until errors.empty?
    ensure
      report(errors) unless errors.empty?
    end

    def ordinary?(error) = error.is_a?(StandardError) || error.is_a?(ScriptError)

    def kept(list) = list || (raise "this group discards its results")

    def refuse
      leave_block
      raise "this group has ended"
    end

    def take_place
      @places&.push(true)
    rescue ClosedQueueError
      task = @running.each_key.find(&:runs_here?) or refuse
      @scheduler.yield # a task is cancelled, which its rescue clauses do not see
      throw task
    end

    def launch_each(elements, body, kind = nil, block = body)
      raise ArgumentError, "no block given" unless block

      tasks = []
      elements.each { |*element| tasks << launch(body, element, kind, block) } # Enumerator::Lazy#map would run nothing
      tasks
    end

    def launch(body, arguments, kind, block = body)
      check_thread
      raise ArgumentError, "no block given" unless body

      refuse if @closed
      take_place unless kind == :transient
      start(Task.new(self, @scheduler, body, arguments, kind, block), block)
    end

    # The fiber is named after the block.
    def start(task, block) # rubocop:disable Lint/UnusedMethodArgument -- {FiberName.place_of} reads it
      begun = false
      @running[task] = true
      @awaited += 1 unless task.kind == :transient
      @scheduler.fiber do
        begun = true
        @deadline&.enter_task
        @tasks&.push(task) unless task.kind
        task.call
      end
      task
    ensure
      forget(task) unless begun
    end

    def forget(task)
      return unless @running.delete(task)

      unless task.kind == :transient
        @awaited -= 1
        @places&.pop(true)
      end
      @ended&.push(task) unless task.kind
      @next_end&.close # wakes all that wait in #first
      @next_end = nil
      return unless @awaited.zero?

      @idle&.close
      @idle = nil
    end
  end

  class << self
    # Opens a {Group}: runs the block, waits for all tasks that were started in it, and returns the block's value. In a fiber without a
    # scheduler, it does so in {Reactor.run}.
    #
    # @param limit [Integer, nil] tasks that run at once, at most
    # @param timeout [Numeric, nil] seconds for all of it; 0 or less: over at the first wait
    # @param discard [Boolean] whether tasks are forgotten when they have ended, in a group that lasts; then it has no {Group#results}
    # @yieldparam group [Group]
    # @return what the block returns
    # @raise the first error of a task or of the block; see {Group}
    # @raise [Timeout::Error] the time is over, and all tasks have ended
    # @raise [RuntimeError] the thread has another library's scheduler
    # @raise [ArgumentError] no block; limit is below 1
    # @raise [TypeError] limit is no Integer, and has no to_int; timeout is no number
    # @raise [RangeError] limit is too large for a Thread::SizedQueue
    def group(limit: nil, timeout: nil, discard: false, &block)
      raise ArgumentError, "no block given" unless block

      limit = Options.count(:limit, limit) unless limit.nil?
      timeout = Options.limit(:timeout, timeout)
      scheduler = Schedulers.current
      return run { group(limit: limit, timeout: timeout, discard: discard, &block) } unless scheduler

      Group.new(scheduler, limit, timeout, discard).run(&block)
    end
  end
end

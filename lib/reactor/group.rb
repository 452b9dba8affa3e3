# frozen_string_literal: true

require "set" # at once, because a process may have no descriptor left when it opens its first group
require "timeout"
require_relative "options"
require_relative "run"
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
  # time is over, or if the block is left in another way: by break, throw, an exception from outside, or the end of its fiber. If a task
  # has opened a group itself, the tasks of that group end first.
  #
  # Of several errors, the owner raises the first, except that one which is neither a StandardError nor a ScriptError goes first. Each
  # other one goes to `on_error`, or is reported, as the error of a fiber ({Lifecycle#run}), and {#errors} has them all.
  #
  # A group belongs to one thread. All of its fibers, and others of its scheduler, may use it.
  class Group
    # Ends the block at the call in which it waits. It is no StandardError, so that a `rescue` in the block does not end it.
    Interruption = Class.new(Exception)
    private_constant :Interruption

    # @api private
    def initialize(scheduler, limit, timeout, discard)
      @scheduler = scheduler
      @timeout = timeout
      @places = Thread::SizedQueue.new(limit) if limit # an element for each task that runs
      @thread = Thread.current
      @owner = Fiber.current
      @stop = Interruption.new("the group has ended")
      @running = {}.compare_by_identity
      @errors = Set.new.compare_by_identity
      @closed = false
      @tasks = [] unless discard
      @ended = [] unless discard # tasks that #first has not taken, in the order in which they ended
    end

    # Runs a block in a fiber of its own, at once, until it waits for the first time. If as many tasks run as the limit allows, this
    # waits until one has ended.
    #
    # @return [Task]
    # @raise [ThreadError] called by another thread
    # @raise [RuntimeError] the group fails, or has ended
    def async(&block)
      check_thread
      raise ArgumentError, "no block given" unless block

      refuse if @closed
      take_place
      start(Task.new(self, @scheduler, block))
    end

    # Waits until no task runs.
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

        cancel
        return task.value
      end
      refuse if @errors.any?
    end

    # Calls the block for each element, each in a task of its own, and waits for these tasks.
    #
    # @param elements [Enumerable] is asked for the next element when there is a place for its task
    # @return [Array] what the block has returned, in the order of the elements
    # @raise [Exception] as {#async} and {Task#value}
    def map(elements)
      raise ArgumentError, "no block given" unless block_given?

      tasks = []
      elements.each { |*element| tasks << async { yield(*element) } } # Enumerator::Lazy#map would run nothing
      tasks.map(&:value)
    end

    # Cancels the tasks that run now; see {Task#cancel}. A task that calls this ends as well.
    #
    # @return [self]
    # @raise [ThreadError] called by another thread
    def cancel
      check_thread
      own, others = @running.keys.partition { |task| task.runs_here? }
      (others + own).each(&:cancel)
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
        fail_with(error) unless error.equal?(@stop)
      ensure
        end_tasks
      end
      raised = @errors.find { |each| !ordinary?(each) } || @errors.first
      raised ||= Timeout::Error.new("execution expired") if error
      raise raised, cause: raised.cause if raised

      value
    ensure
      report(@errors.reject { |each| each.equal?(raised) })
    end

    # A task has ended, in its fiber.
    #
    # @api private
    def ended(task)
      forget(task)
      fail_with(task.error) if task.error
    end

    # Leaves the block, if the group has failed, and the caller is the block itself.
    #
    # @api private
    def leave_block
      return unless @closed && @interruption && Fiber.current.equal?(@owner)

      @scheduler.yield # raises the interruption that is on its way, so that it ends no later wait
      raise @stop
    end

    # @api private
    def check_thread
      raise ThreadError, "this group belongs to another thread" unless Thread.current.equal?(@thread)
    end

    # @return [String] how many tasks run
    def inspect = "#<#{self.class} #{@running.size} running#{", ended" if @closed}>"

    private

    def supervise
      @scheduler.interruptible(@timeout, @stop) do |interruption|
        @interruption = interruption
        yield(self).tap { wait_for_tasks }
      end
    ensure
      @interruption = nil
    end

    # An exception from outside, or a kill, may come meanwhile: it goes on when the tasks have ended.
    def end_tasks
      close
      wait_for_tasks
    ensure
      end_tasks unless idle?
    end

    # In a forked child, the tasks of its parent do not run.
    def idle? = @running.empty? || @scheduler.forked_child?

    def wait_for_tasks
      (@idle ||= Thread::Queue.new).pop until idle?
    end

    # Waits for the next task that ends; nil if none is left.
    def next_ended
      (@next_end ||= Thread::Queue.new).pop while kept(@ended).empty? && !idle?
      @ended.shift
    end

    def forbid_own_tasks
      check_thread
      raise ThreadError, "a task cannot wait for itself" if @running.each_key.any?(&:runs_here?)
    end

    def close
      return if @closed

      @closed = true
      cancel
    ensure
      @places&.close # after the cancel: a task that waits for a place is cancelled, too
    end

    def fail_with(error)
      return unless @errors.add?(error) # the same one comes again by Task#value

      @scheduler.interrupt(@interruption) if @interruption && !@closed
      close
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

    def start(task)
      begun = false
      @running[task] = true
      @scheduler.fiber do
        begun = true
        @tasks&.push(task)
        task.call
      end
      task
    ensure
      forget(task) unless begun
    end

    def forget(task)
      return unless @running.delete(task)

      @places&.pop(true)
      @ended&.push(task)
      @next_end&.close # wakes all that wait in #first
      @next_end = nil
      return unless @running.empty?

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
    def group(limit: nil, timeout: nil, discard: false, &block)
      raise ArgumentError, "no block given" unless block

      limit = Options.count(:limit, limit) unless limit.nil?
      timeout = Options.limit(:timeout, timeout)
      scheduler = Schedulers.current
      unless scheduler
        return run do
          FiberName.born_with(block)
          group(limit: limit, timeout: timeout, discard: discard, &block)
        end
      end
      Group.new(scheduler, limit, timeout, discard).run(&block)
    end
  end
end

# frozen_string_literal: true

require_relative "../clock"
require_relative "../histogram"
require_relative "../vm"

module Reactor
  # Ruby threads for work that blocks or computes with the GVL released and has no other form. The fiber that wants it is parked
  # meanwhile.
  #
  # The first thread starts with the first job, and there are never more than the limit. A fiber has at most one job here, so
  # the queue has at most as many jobs as there are fibers. If a fiber is interrupted before its job has begun, it takes the
  # job back. If the job has begun, the worker is interrupted, and the fiber leaves when the job has ended, because the job may
  # refer to memory on the fiber's stack.
  #
  # A worker has no fiber storage of its own. During a job it has a copy of that of the job's fiber. Of what the job sets on the
  # thread, only thread variables stay for the next one.
  #
  # A worker goes on after an error of its job, and after an error that another thread raises in it. A worker that is killed is
  # replaced.
  #
  # @api private
  class WorkerPool
    # Raised in a worker when its job is cancelled.
    class Cancelled < Exception # rubocop:disable Lint/InheritException -- no rescue in the job may catch it
    end
    private_constant :Cancelled

    # One piece of work: from the fiber that wants it to the worker that runs it, and back. It has no Mutex, because a trap
    # handler may wait for a job, and a Mutex cannot be locked there.
    class Job
      def initialize(work)
        @work = work
        @process = Process.pid
        @storage = Fiber.current.storage # a copy
        @queued_at = Clock.real
        @state = :waiting
        @claim = Thread::Queue.new([true]) # the worker that takes it runs the job, or else the fiber drops it
        @end = Thread::Queue.new
      end

      # Called by the fiber: what the work returns, or raises. The end of the program kills all threads at once. If that of the fiber ends,
      # its fibers are cancelled first: in one turn it asks them to end, and the next one may be theirs.
      def value
        wait_until_over
        return @value unless @error

        2.times { sleep 0 } if @killed && Thread.current.status == "aborting"
        raise @error
      end

      # Called by the worker, with interrupts deferred. Afterwards the job is {#waiting?} still if the worker was interrupted
      # before the work had begun. Then another worker has to run it.
      def perform
        @worker = Thread.current
        return unless claim(:running)

        @begun_at ||= Clock.real
        begin
          VM.replace_storage(@storage)
          attempt
        ensure
          finish
        end
      end

      def waiting? = @state == :waiting

      # Whether its worker takes no other one: in a child that the work has forked; and if it has raised IOError, because before
      # Ruby 4.0 the close of an IO that this thread has read may return only when the thread has ended.
      def last? = forked_child? || IOError === @error

      # Whether the work has forked, and this is the child.
      def forked_child? = @process != Process.pid

      # Called by the fiber: no worker is to run it.
      def drop = claim(:dropped)

      # Called by the fiber.
      #
      # @return [Float, nil] seconds until a worker began; nil if none has
      def queued_for = @begun_at && @begun_at - @queued_at

      private

      # Whether the job was waiting. Then it is in the other state.
      def claim(state)
        @claim.pop(true)
        @state = state
        true
      rescue ThreadError
        false # the queue is empty
      end

      # May come again: see {#perform}.
      def attempt
        @begun = false
        @error = nil
        # An exception that was raised in the worker before this job comes out here. The job has not begun, so it is tried again.
        Thread.handle_interrupt(Object => :immediate) { nil }
        @value = Thread.handle_interrupt(Object => :immediate) do
          @begun = true
          @work.call unless @cancelled
        end
        @done = true
      rescue Exception => @error # rubocop:disable Lint/RescueException -- raised in the fiber, and not in the worker
        raise if forked_child? # where the fiber does not run

        @done = @begun || @cancelled
      ensure
        @killed = @begun && !@done
        @error = ThreadError.new("the worker was killed") if @killed
      end

      def finish
        @state = @begun || @cancelled ? :over : :waiting
        over? ? @end.push(nil) : @claim.push(true)
        # From here on the fiber interrupts the worker no more. An interrupt that is on its way takes effect here.
        Thread.handle_interrupt(Cancelled => :immediate) { nil } if @cancelled
      rescue Cancelled
        nil
      end

      # However often the fiber is interrupted, it leaves only when the job is over, by the last error. Errors come in a loop,
      # because thousands of them may come, and each nested frame takes some of the fiber's stack. A kill is not repeated.
      def wait_until_over
        error = nil
        until over?
          begin
            @end.pop
          rescue Exception => error # rubocop:disable Lint/RescueException -- raised below
            cancel
          end
        end
        raise error if error
      ensure
        unless over?
          begin
            cancel
          ensure
            wait_until_over
          end
        end
      end

      def over? = %i[over dropped].include?(@state)

      # If the job ends meanwhile, the worker ignores the interrupt: see {#attempt} and {WorkerPool#next_job}.
      def cancel
        return if @cancelled || over? || claim(:dropped)

        @cancelled = true
        @worker.raise(Cancelled)
      end
    end
    private_constant :Job

    NAME = "reactor worker"
    private_constant :NAME

    # @param limit [Integer] threads at most
    def initialize(limit)
      @limit = limit
      @jobs = Thread::Queue.new
      @threads = []
      @queue_times = Histogram.new
    end

    # @return [Histogram] how long jobs were queued
    attr_reader :queue_times

    # @return [Integer] threads there are
    def size = @threads.count(&:alive?)

    # Has a worker run the block. The calling fiber is parked meanwhile.
    #
    # @param otherwise [#call, nil] is called instead if there is no worker and none can be started
    # @return what the block returns
    # @raise what the block raises
    # @raise [ThreadError] the worker is killed, or cannot be started
    def run(otherwise = nil, &work)
      job = Job.new(work)
      @jobs.push(job)
      begin
        start_worker_if_needed
      rescue ThreadError
        job.drop
        otherwise ? (return otherwise.call) : raise
      end
      job.value
    ensure
      seconds = job&.queued_for
      @queue_times.record(seconds) if seconds
    end

    # Takes no more jobs: each worker ends when it finds none.
    def finish = @jobs.close

    # Asks all workers to end. They are idle, unless fibers were abandoned.
    def stop
      finish
      @threads.dup.each(&:kill)
    end

    # Waits for the end of all workers.
    def join = @threads.dup.each(&:join)

    private

    def start_worker_if_needed
      @threads.select!(&:alive?)
      return if @jobs.num_waiting >= @jobs.size || @threads.size >= @limit

      @threads << Thread.new { Thread.handle_interrupt(Object => :never) { run_jobs } }
    rescue ThreadError
      raise if @threads.empty? # otherwise the workers there are run it later
    end

    def run_jobs
      thread = Thread.current
      priority = thread.priority
      Internal.lengthen_time_slice
      loop do
        reset(thread, priority)
        break unless run_next_job
      end
    ensure
      @threads.delete(thread)
      start_worker_if_needed unless @jobs.empty?
    end

    # Undoes what the last job has set, and drops the storage of the fiber which happened to start the thread. Thread variables
    # stay: they are for what lives as long as the thread, such as a connection.
    def reset(thread, priority)
      VM.replace_storage(nil)
      thread.keys.each { |key| thread[key] = nil }
      thread.name = NAME unless NAME == thread.name # costs a system call
      thread.priority = priority
      thread.report_on_exception = thread.abort_on_exception = false
    end

    # A method of its own, so that an idle worker keeps no job alive.
    #
    # @return [Boolean] whether there may be another one
    def run_next_job
      job = next_job or return false
      job.perform
      !job.last?
    ensure
      @jobs.push(job) if job&.waiting? && !@jobs.closed?
    end

    # Interrupts take effect here, where the worker has no job.
    def next_job
      Thread.handle_interrupt(Object => :on_blocking) { @jobs.pop }
    rescue Exception # rubocop:disable Lint/RescueException -- raised by another thread; the worker belongs to the pool
      retry
    end
  end
end

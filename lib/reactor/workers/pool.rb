# frozen_string_literal: true

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
  # A worker goes on after an error of its job, and after one that another thread raises in it between two jobs. A worker that is killed
  # is replaced.
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
        @claim = Thread::Queue.new([true]) # the worker that takes it runs the job, or else the fiber drops it
        @end = Thread::Queue.new # closed when the job is over
      end

      # Called by the fiber: what the work returns, or raises. The end of the program kills all threads at once. If that of the fiber ends,
      # its fibers are cancelled first: in one turn it asks them to end, and the next one may be theirs.
      def value
        wait_until_over
        return @value unless @error

        2.times { sleep 0 } if @killed && Thread.current.status == "aborting"
        raise @error
      end

      # Called by the worker, with interrupts deferred.
      def perform
        @worker = Thread.current
        run if claim?
      end

      # Whether its worker takes no other one: in a child that the work has forked; and if it has raised IOError, because before
      # Ruby 4.0 the close of an IO that this thread has read may return only when the thread has ended.
      def last? = forked_child? || IOError === @error

      # Called by the fiber: no worker is to run it.
      #
      # @return [Boolean] whether none has begun
      def drop = claim? && !!@end.close

      # @return [Float] the time when it was made
      attr_reader :queued_at

      private

      # Whether neither a worker nor the fiber had it.
      def claim?
        @claim.pop(true)
      rescue ThreadError
        false # the queue is empty
      end

      def run
        @killed = true
        VM.replace_storage(@storage)
        @value = Thread.handle_interrupt(Object => :immediate) { @work.call }
        @killed = false
      rescue Exception => @error # rubocop:disable Lint/RescueException -- raised in the fiber, and not in the worker
        raise if forked_child? # where the fiber does not run

        @killed = false
      ensure
        @error = ThreadError.new("the worker was killed") if @killed
        @end.close
        Thread.pass until @settled || !@cancelled
      end

      # Whether the work has forked, and this is the child.
      def forked_child? = @process != Process.pid

      # However often the fiber is interrupted, it leaves only when the job is over, by the last error. Errors come in a loop,
      # because thousands of them may come, and each nested frame takes some of the fiber's stack. A kill is not repeated.
      def wait_until_over
        error = nil
        until @end.closed?
          begin
            @end.pop
          rescue Exception => error # rubocop:disable Lint/RescueException -- raised below
            cancel
          end
        end
        raise error if error
      ensure
        unless @end.closed?
          begin
            cancel
          ensure
            wait_until_over
          end
        end
      end

      # A worker that ends the job meanwhile waits until this is settled, and ignores the interrupt: see {WorkerPool#next_job}. Otherwise it
      # would hit the next job.
      def cancel
        return if @cancelled || drop

        @cancelled = true
        @worker.raise(Cancelled) unless @end.closed?
      ensure
        @settled = true
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
      priority = Thread.current.priority
      Internal.lengthen_time_slice
      nil while run_next_job(priority)
    ensure
      @threads.delete(Thread.current)
      start_worker_if_needed unless @jobs.empty?
    end

    # A method of its own, so that an idle worker keeps no job alive.
    #
    # @return [Boolean] whether there may be another one
    def run_next_job(priority)
      reset(Thread.current, priority)
      job = next_job or return false
      @queue_times.record(Clock.real - job.queued_at)
      job.perform
      !job.last?
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

    # Interrupts take effect here, where the worker has no job.
    def next_job
      Thread.handle_interrupt(Object => :immediate) { nil }
      Thread.handle_interrupt(Object => :on_blocking) { @jobs.pop }
    rescue Exception # rubocop:disable Lint/RescueException -- raised by another thread; the worker belongs to the pool
      retry
    end
  end
end

# frozen_string_literal: true

module Reactor
  # Ruby threads for work that blocks or computes with the GVL released and has no non-blocking form. The fiber that requests the
  # work is parked meanwhile.
  #
  # Threads start on demand, up to the limit. A fiber has at most one job here, so the queue never has more jobs than there are
  # fibers. When a fiber is interrupted before its job has started, it withdraws the job. If the job has started, the worker is
  # interrupted, and the fiber leaves once the job has ended, because the job may refer to memory on the fiber's stack.
  #
  # A worker has no fiber storage of its own; during a job it has a copy of the storage of the job's fiber. A job may change the
  # thread, but only its thread variables remain for the next job.
  #
  # A worker survives an error in its job, and an error that another thread raises in it between two jobs. A worker that is killed
  # is replaced.
  #
  # @api private
  class WorkerPool
    # Raised in a worker when its job is cancelled.
    class Cancelled < Exception # rubocop:disable Lint/InheritException -- no rescue in the job may catch it
    end
    private_constant :Cancelled

    # A piece of work on its way from a fiber to a worker and back. It uses no Mutex, because a trap handler may wait for a job,
    # and cannot lock one.
    class Job
      def initialize(work)
        @work = work
        @process = Process.pid
        @storage = Fiber.current.storage # a copy
        @queued_at = Clock.real
        @claim = Thread::Queue.new([true]) # holds one token: a worker that takes it runs the job, the fiber drops it
        @end = Thread::Queue.new # closed when the job has ended
      end

      # Called by the fiber. Returns what the work returns, or raises what it raises. When the program ends, all threads are killed
      # at once; if this thread is ending too, waits two turns, so that the fiber is cancelled before it gets the worker's error.
      def value
        wait_until_ended
        return @value unless @error

        2.times { sleep 0 } if @killed && Thread.current.status == "aborting"
        raise @error
      end

      # Called by the worker, with interrupts deferred.
      def perform
        @worker = Thread.current
        run if claim?
      end

      # Whether its worker must take no further job. That is so in a child that the work has forked, and after an IOError: before
      # Ruby 4.0, the close of an IO that this thread has read may return only once the thread has ended.
      def last? = forked_child? || IOError === @error

      # Called by the fiber to keep workers from running the job.
      #
      # @return [Boolean] whether no worker has started it
      def drop = claim? && !!@end.close

      # @return [Float] when it was made
      attr_reader :queued_at

      private

      # Claims the job. Returns whether neither a worker nor the fiber had claimed it before.
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
        raise if forked_child? # the fiber does not run there

        @killed = false
      ensure
        @error = ThreadError.new("the worker was killed") if @killed
        @end.close
        Thread.pass until @settled || !@cancelled
      end

      # Whether the work has forked, and this is the child process.
      def forked_child? = @process != Process.pid

      # However often the fiber is interrupted, it leaves only once the job has ended, and raises the last error. It waits in the
      # clause of the first one, so that no second {Reactor::Cancelled} comes. A loop handles the errors, because there may be
      # thousands, and nested frames would use up the fiber's stack. A kill occurs only once.
      def wait_until_ended
        @end.pop
      rescue Exception => error # rubocop:disable Lint/RescueException -- raised below
        until @end.closed?
          begin
            cancel
            @end.pop
          rescue Exception => error # rubocop:disable Lint/RescueException, Lint/SuppressedException -- raised below
          end
        end
        raise error
      ensure
        unless @end.closed?
          begin
            cancel
          ensure
            wait_until_ended
          end
        end
      end

      # If a worker ends the job meanwhile, it waits until this method has ended, and then ignores the interrupt. Otherwise the
      # interrupt would hit the next job: see {WorkerPool#next_job}.
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

    # @param limit [Integer] maximum number of threads
    def initialize(limit)
      @limit = limit
      @jobs = Thread::Queue.new
      @threads = []
      @queue_times = Histogram.new
    end

    # @return [Histogram] how long jobs were queued
    attr_reader :queue_times

    # @return [Integer] number of live threads
    def size = @threads.count(&:alive?)

    # Runs the block on a worker, while the calling fiber is parked.
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

    # Accepts no more jobs: each worker ends when the queue is empty.
    def finish = @jobs.close

    # Kills all workers. They are idle, unless fibers were abandoned.
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
      raise if @threads.empty? # otherwise an existing worker will run the job
    end

    def run_jobs
      priority = Thread.current.priority
      nil while run_next_job(priority)
    ensure
      @threads.delete(Thread.current)
      start_worker_if_needed unless @jobs.empty?
    end

    # A separate method, so that an idle worker keeps no job alive.
    #
    # @return [Boolean] whether the worker may take another job
    def run_next_job(priority)
      reset(Thread.current, priority)
      job = next_job or return false
      @queue_times.record(Clock.real - job.queued_at)
      job.perform
      !job.last?
    end

    # Undoes the settings of the last job, and drops the storage inherited from the fiber that happened to start the thread.
    # Thread variables remain, for objects that should live as long as the thread, such as a connection.
    def reset(thread, priority)
      VM.replace_storage(nil)
      thread.keys.each { |key| thread[key] = nil }
      thread.name = NAME unless NAME == thread.name # setting it costs a system call
      thread.priority = priority
      thread.report_on_exception = thread.abort_on_exception = false
    end

    # Lets interrupts take effect here, while the worker has no job.
    def next_job
      Thread.handle_interrupt(Object => :immediate) { nil }
      Thread.handle_interrupt(Object => :on_blocking) { @jobs.pop }
    rescue Exception # rubocop:disable Lint/RescueException -- other threads have no business raising in a worker
      retry
    end
  end
end

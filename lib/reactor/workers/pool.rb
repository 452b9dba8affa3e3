# frozen_string_literal: true

module Reactor
  # A few threads of Ruby's for work that blocks or computes with the GVL released, and has no other form: on behalf of
  # fibers, which are parked meanwhile.
  #
  # The first thread starts with the first job, and there are never more than the limit; each fiber has at most one job
  # here, so the queue is as long as there are fibers at most. A fiber that is interrupted takes its job back if it has not
  # begun; if it has, the worker is interrupted as any thread of Ruby's would be, and the fiber leaves when that has
  # taken effect: what the job refers to may lie on the fiber's stack.
  #
  # A worker outlives whatever a job raises, and what is raised in it by others. One that is killed is replaced.
  # @api private
  class WorkerPool
    # Raised in a worker whose job nobody wants any more.
    class Cancelled < Exception # rubocop:disable Lint/InheritException -- no rescue of the job's own may take it
    end
    private_constant :Cancelled

    # One piece of work: from the fiber that wants it to the worker that does it, and back.
    class Job
      def initialize(work)
        @work = work
        @state = :waiting
        @lock = Thread::Mutex.new
        @end = Thread::Queue.new
      end

      # The fiber's side: what the work returns, or raises.
      def value
        settle
        raise @error if @error

        @value
      end

      # The worker's side, interrupts being deferred. Afterwards it is {#waiting?} still if the worker was struck before the
      # work had begun: then another has to do it.
      def perform
        @lock.synchronize do
          return unless @state == :waiting

          @state = :running
          @worker = Thread.current
        end
        begin
          attempt
        ensure
          finish
        end
      end

      def waiting? = @state == :waiting

      private

      def attempt
        @begun = false
        @value = Thread.handle_interrupt(Object => :immediate) do
          @begun = true
          @work.call
        end
        @done = true
      rescue Exception => @error # rubocop:disable Lint/RescueException -- the fiber's affair, not the worker's
        @done = @begun || @cancelled
      ensure
        @error = ThreadError.new("the worker was killed") if @begun && !@done
      end

      def finish
        @lock.synchronize { @state = @begun || @cancelled ? :over : :waiting }
        @end.push(nil) if over?
        # From here on nobody interrupts on behalf of this job; what is on its way ends here.
        Thread.handle_interrupt(Cancelled => :immediate) { nil } if @cancelled
      rescue Cancelled
        nil
      end

      # However often the fiber is interrupted, it leaves only when the job is over.
      def settle
        @end.pop until over?
      ensure
        unless over?
          begin
            cancel
          ensure
            settle
          end
        end
      end

      def over? = %i[over dropped].include?(@state)

      def cancel
        @lock.synchronize do
          if @state == :waiting
            @state = :dropped
          elsif @state == :running && !@cancelled
            @cancelled = true
            @worker.raise(Cancelled)
          end
        end
      end
    end
    private_constant :Job

    # @param limit [Integer] threads at most
    def initialize(limit)
      @limit = limit
      @jobs = Thread::Queue.new
      @threads = []
    end

    # @return [Integer] threads there are
    def size = @threads.count(&:alive?)

    # Has the block run by a worker; the calling fiber is parked.
    #
    # @return what the block returns
    # @raise what the block raises; ThreadError if its worker is killed or cannot be started
    def run(&work)
      job = Job.new(work)
      @jobs.push(job)
      grow
      job.value
    end

    # Ends all the workers. (They are idle, unless fibers were abandoned.)
    def close
      @jobs.close
      @threads.dup.each { |thread| thread.kill.join }
    end

    private

    def grow
      @threads.select!(&:alive?)
      return if @jobs.num_waiting >= @jobs.size || @threads.size >= @limit

      @threads << Thread.new { Thread.handle_interrupt(Object => :never) { work } }
    rescue ThreadError
      raise if @threads.empty? # otherwise the others get round to it
    end

    def work
      thread = Thread.current
      thread.name = "reactor worker"
      Reactor.stand_back
      thread.report_on_exception = false
      while (job = take)
        begin
          job.perform
        ensure
          @jobs.push(job) if job.waiting? && !@jobs.closed?
        end
      end
    ensure
      @threads.delete(thread)
      grow unless @jobs.empty?
    end

    # Interrupts strike while there is no job in hand.
    def take
      Thread.handle_interrupt(Object => :on_blocking) { @jobs.pop }
    rescue Exception # rubocop:disable Lint/RescueException -- raised by somebody in a thread that is none of theirs
      retry
    end
  end
end

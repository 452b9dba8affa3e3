# frozen_string_literal: true

module Reactor
  class << self
    # Runs a block that calls blocking C code without stalling the other fibers: on a worker thread if the calling fiber has a
    # scheduler, otherwise in the calling fiber.
    #
    #   page = Reactor.offload { Curl.get(url).body }
    #
    # A scheduler of this library has up to `workers:` worker threads. Under another library's scheduler, the block gets a thread
    # of its own. If no thread can be started, the block runs in the calling fiber and stalls the others.
    #
    # On a thread, the block has a copy of its caller's fiber storage: values that the block writes there are lost when it ends.
    # It does not see its caller's thread variables and fiber-local variables (`Thread#[]`). Blocks that run on the same thread
    # one after another share its thread variables, which suits a connection per thread; fiber-local variables, name, priority,
    # `report_on_exception` and `abort_on_exception` are reset between them. In the calling fiber, the block sees everything the
    # fiber sees, and what it writes to the storage stays there.
    #
    # @return what the block returns
    # @raise what the block raises
    # @raise [ThreadError] the worker was killed
    # @raise [ArgumentError] without a block
    # @see Offload#offload
    def offload(&block)
      raise ArgumentError, "no block given" unless block

      scheduler = Fiber.current_scheduler
      return yield unless scheduler
      return scheduler.offload(&block) if scheduler.is_a?(Schedulers::Member)

      OffloadPolicy.new(:never, 1).run_on_own_thread(block, &block)
    end
  end

  # Hands work to threads. If the calling fiber is blocking or has another scheduler, the work runs inline.
  module Offload
    # Runs a block on a worker thread while the fiber is parked. Use it for work that blocks or computes with the GVL released and
    # that Ruby does not offer to the scheduler, such as a call into a C library.
    #
    # When the fiber is interrupted, the worker is interrupted too, and the fiber continues once the block has ended. If there is
    # no worker and none can be started, the block runs inline. {Reactor.offload} says what the block sees of the fiber's storage.
    #
    # @return what the block returns
    # @raise what the block raises
    # @raise [ThreadError] the worker was killed
    # @raise [ArgumentError] without a block
    def offload(&block)
      raise ArgumentError, "no block given" unless block
      return yield unless current?

      @offload.run_on_worker(&block)
    end

    # Like {#offload}, for a block that may wait forever, perhaps for another fiber: instead of a worker it gets a new thread that
    # counts towards no limit.
    #
    # @param otherwise [#call, nil] is called instead when no thread can be started
    # @return what the block returns
    # @raise what the block raises
    # @raise [ThreadError] no thread can be started
    # @api private
    def run_on_own_thread(otherwise = nil, &block)
      return yield unless current? && !closed?

      @offload.run_on_own_thread(otherwise, &block)
    end

    # Runs work inline if work from this place has been cheap so far, otherwise on a worker; see {Lifecycle#initialize}. Lets
    # other fibers run first if the time slice is spent. The extension calls this by name.
    #
    # @param place [Object] identifies where the work comes from
    # @param work [#call]
    # @return what the work returns
    # @api private
    def run_by_cost(place, work)
      return run_inline(work) unless current? && !closed?

      yield_if_slice_spent if @offload.may_switch?
      @offload.call(place, work)
    end

    # Runs work that may wait forever, and so must not be judged by its cost, on a thread of its own. The extension calls this by
    # name.
    #
    # @param work [#call]
    # @return what the work returns
    # @raise [ThreadError] no thread can be started
    # @api private
    def run_waiting(work)
      current? && !closed? && @offload.may_switch? ? @offload.run_on_own_thread { work.call } : run_inline(work)
    end

    # Runs work that `blocking_operation_wait` would leave to the VM, because an override has called the hook. IO.copy_stream then
    # blocks the thread when it waits. The extension calls this by name.
    #
    # @param work [#call]
    # @return what the work returns
    # @api private
    def run_inline(work) = Fiber.blocking { work.call }

    # @return [Hash{Symbol => Integer}] see {Inspection#stats}
    def stats = super.merge(@offload.stats)

    # @return [Histogram] how long work waited for a worker
    # @api private
    def offload_queue_times = @offload.queue_times
  end
end

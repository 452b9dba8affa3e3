# frozen_string_literal: true

module Reactor
  class << self
    # Runs a block that calls blocking C code, so that the other fibers go on: on a worker thread if the calling fiber has a
    # scheduler, else in the calling fiber.
    #
    #   page = Reactor.offload { Curl.get(url).body }
    #
    # A scheduler of this library has a number of workers (`workers:`). Under another library's scheduler the block gets a thread
    # of its own. If no thread can be started, the block runs where it is called, and stops the other fibers.
    #
    # On a thread, the block has a copy of its caller's fiber storage: what it writes there is lost when it ends. It does not see the
    # thread variables and fiber-local variables (`Thread#[]`) of its caller. A later block may get the same thread. It finds the
    # thread variables that earlier ones have set there, which suits a connection per thread; fiber-local variables, name, priority,
    # `report_on_exception` and `abort_on_exception` are reset. In the calling fiber the block has all that is the fiber's, and what it
    # writes into the storage stays there.
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

  # How a scheduler hands work to threads. The work is run inline where the calling fiber is blocking, has another scheduler,
  # or runs in a forked child.
  module Offload
    # Runs a block on a worker thread while the fiber is parked. It is for work that blocks or computes with the GVL
    # released and that Ruby does not offer to the scheduler, for example a call into a C library.
    #
    # If the fiber is interrupted, the worker is interrupted as well, and the fiber goes on when the block has ended. If there is no
    # worker and none can be started, the block runs inline. What the block sees of the fiber's storage, {Reactor.offload} says.
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

    # As {#offload}, for a block that may wait for ever, and perhaps for another fiber: it takes no worker, and gets a thread that counts
    # towards no limit.
    #
    # @param otherwise [#call, nil] is called instead if no thread can be started
    # @return what the block returns
    # @raise what the block raises
    # @raise [ThreadError] no thread can be started
    # @api private
    def run_on_own_thread(otherwise = nil, &block)
      return yield unless current? && !closed?

      @offload.run_on_own_thread(otherwise, &block)
    end

    # Runs work inline if work from this place has been cheap so far, else on a worker; see {Lifecycle#initialize}. Before it,
    # other fibers run if the time slice is spent. The extension calls it by this name.
    #
    # @param place [Object] where the work comes from
    # @param work [#call]
    # @return what the work returns
    # @api private
    def run_by_cost(place, work)
      return run_inline(work) unless current? && !closed?

      yield_if_slice_spent if @offload.may_switch?
      @offload.call(place, work)
    end

    # Runs what `blocking_operation_wait` leaves to the VM, if an override has called it. IO.copy_stream then
    # blocks the thread where it waits. The extension calls it by this name.
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

# frozen_string_literal: true

module Reactor
  # How a scheduler begins and ends. A scheduler belongs to one thread; see {#run}.
  module Lifecycle
    include Schedulers::Member

    UNINTERRUPTED = { Object => :never }.freeze
    private_constant :UNINTERRUPTED

    # @param backend [Symbol, String, nil] see {Reactor.backends}; nil: REACTOR_BACKEND, else the best
    # @param stall [Numeric, nil] seconds, more than 0, that a fiber may hold the loop before it is reported, see
    #   {StallDetector}; nil: no limit
    # @param on_stall [#call, nil] is given each {Stall}, on a thread of its own; nil: it is written to $stderr
    # @param on_error [#call, nil] is given each error that ends a fiber, and the fiber, as {#run} says; nil: the error is reported
    # @param workers [Integer, nil] worker threads at most, for work that Ruby code or its C extensions do with the GVL
    #   released, see {Offload#offload}; nil: as many as processors, but at least 4. A worker starts when it is needed.
    # @param policy [Symbol] which of the operations that Ruby 3.4 and later offer to the scheduler (see
    #   `blocking_operation_wait`) a worker does: :measured, those that are slow; :always, all; :never, none,
    #   as in every Ractor but the main one
    # @raise [ArgumentError] the backend is unknown or not available here, and the message says why; stall is not positive;
    #   the policy is unknown; fewer than one worker
    # @raise [TypeError] stall is no duration; on_stall or on_error cannot be called; workers is no Integer
    def initialize(backend: nil, stall: nil, on_stall: nil, on_error: nil, workers: nil, policy: :measured)
      raise TypeError, "on_error must respond to call" unless on_error.nil? || on_error.respond_to?(:call)

      detector = StallDetector.new(self, stall, on_stall) if stall
      @offload = OffloadPolicy.new(policy, workers.nil? ? OffloadPolicy::WORKERS : workers)
      # Ruby 3.4 must not move this thread to another native thread while it has fibers. Ruby 4.0 may.
      locked = Internal.lock_native_thread if RUBY_VERSION.start_with?("3.4")
      @may_wait_for_threads = locked || RUBY_VERSION >= "4.0" || Ractor.current.equal?(Ractor.main)
      super(Internal.choose(backend))
      @on_error = on_error
      @gc_at_start = GC.total_time
      @trap_check = Thread::Mutex.new
      Patches.install(Patches::CLOSE, Patches::SCHEDULER)
      Schedulers.register(self)
      return unless detector

      @stalls = detector
      singleton_class.prepend(StallDetector::Hook)
    end

    # @return [Boolean] whether a fiber may wait for a thread of its Ractor. Ruby 3.3, and 3.4 with a thread that is not locked to its
    #   native one, may lose the wake-up or crash in other Ractors than the main one: they move this thread between native ones.
    # @api private
    def may_wait_for_threads? = @may_wait_for_threads

    # @raise [TypeError] always: a copy would have the descriptors of the original
    def initialize_copy(_other) = raise(TypeError, "cannot copy #{self.class}")

    # Runs every fiber made by `Fiber.schedule` to its end, and waits for every watcher of {Watching#on_ready} that is not transient.
    #
    # An error that escapes a fiber is reported when it happens. The other fibers go on, and the first of these errors is raised
    # here at the end. An error that is neither a StandardError nor a ScriptError (SystemExit, Interrupt) ends the run at once: the
    # remaining fibers are cancelled, their ensure clauses run, and then the error goes on from here. So does any error that
    # Thread#raise or a trap handler raises on this thread while the scheduler sleeps. If it comes while a fiber has control, Ruby
    # raises it in that fiber, which may rescue it. Otherwise it is an error that escapes the fiber.
    #
    # With `on_error:`, that is called with each error that would be reported, and with the fiber, instead: in this very fiber, whose
    # storage it finds. The error counts as handled then, and is not raised here. `on_error` may wait, and `exit` in it ends the run. If it
    # raises, or if the fiber is ended meanwhile, the error is reported and raised here as without it. The error of a callback of
    # {Server} comes in the fiber that called it, those that a {Group} does not raise in the fiber that opened the group. If there is no
    # memory for the fiber of a {Watcher}, `on_error` is given the watcher, and blocks the thread where it waits.
    #
    # An error before the first wait of a fiber is its caller's, who gets it from Fiber.schedule.
    #
    # @return [nil]
    # @raise [RuntimeError] the scheduler is closed
    # @raise [ThreadError] it belongs to another thread
    # @raise [FiberError] called from a fiber made by `Fiber.schedule`
    def run
      ended = false
      drain
      ended = true
      nil
    ensure
      abandon unless ended || nothing_left? # also if the thread is killed, which no rescue sees
    end

    # Ends this scheduler: ends its fibers as {#scheduler_close} says, closes its descriptors, and takes it from the thread.
    # A second call does nothing, and neither does a call in a forked child.
    #
    # @return [nil]
    # @raise [ThreadError, FiberError] as {#run}; then nothing has changed
    def close
      forbid_own_fibers unless closed?
      if Fiber.scheduler.equal?(self)
        Fiber.set_scheduler(nil) # which calls scheduler_close
      else
        scheduler_close
      end
      nil
    end

    # Ends every watcher, and asks every live fiber to end, as {PortableScheduler#cancel}. Servers close their connections here, because
    # they get no new fibers.
    #
    # @return [nil]
    # @raise as PortableScheduler#cancel
    # @api private
    def cancel
      @servers&.each_key(&:abandon) unless forked_child?
      super
    end

    # @param server [Server] is told if the fibers and watchers are cancelled, until {#forget_server}
    # @api private
    def add_server(server) = (@servers ||= {}.compare_by_identity)[server] = true

    # @api private
    def forget_server(server) = @servers&.delete(server)

    # There was no memory for the fiber of a watcher, which may be a server's.
    #
    # @api private
    def recover_servers(block, io) = @servers&.each_key { |server| server.recover(block, io) }

    # The hook for the end of the thread, the end of the program (before at_exit) and Fiber.set_scheduler. If the thread is
    # being killed or the program is exiting, the fibers are cancelled; otherwise they run to their end.
    #
    # @return [nil]
    # @raise [ThreadError, FiberError] as {#run}; then the scheduler goes on, although the thread may have none any more: Ruby takes it
    #   away after Fiber.set_scheduler
    def scheduler_close
      begin
        cancel if !closed? && exiting?
        run unless closed?
      ensure
        abandon unless closed? || nothing_left? # killed before or after the run
      end
    ensure
      # A kill of the thread must not interrupt this, because nothing else releases the descriptors.
      Thread.handle_interrupt(UNINTERRUPTED) { end_loop_and_threads unless forked_child? }
      Fiber.blocking { @offload.join } # a closed scheduler has no hooks for Thread#join
    end

    # An error has ended a fiber of the program, or one of its callbacks, and nobody is there to rescue it.
    #
    # @param error [StandardError, ScriptError]
    # @param fiber [Fiber, Watcher]
    # @return [Boolean] whether `on_error` has taken it; otherwise it has been reported, however `on_error` has ended
    # @raise [Exception] what stops a program, if `on_error` raises it
    # @api private
    def report_error(error, fiber = Fiber.current)
      taken = false
      @on_error&.call(error, fiber)
      taken = !@on_error.nil?
    rescue StandardError, ScriptError => own
      report(@on_error, own, "raised an exception, given an error")
      false
    ensure
      report(fiber, error) unless taken
    end

    private

    def report(*arguments)
      VM.report_error(*arguments)
    ensure
      return # rubocop:disable Lint/EnsureReturn -- it drops what the report raises, and a kill
    end

    def nothing_left? = live.zero? && watchers.empty?

    # @return [Float] seconds, on the clock of sleeps and timeouts
    def now = Clock.now

    def end_loop_and_threads
      shutdown
      Schedulers.unregister(self)
      @offload.stop
    end

    # Ends the fibers that have not ended. A second signal ends this, too. If ensure clauses wait for one another, their fibers never end,
    # and are abandoned.
    def abandon
      cancel
      begin
        drain
      rescue Exception => error # rubocop:disable Lint/RescueException -- the first error is the one to report
        retry unless nothing_left? || error.is_a?(SignalException) || error.is_a?(VM::FATAL)
      end
    end

    # The thread's status and an Integer in $! show Thread#kill. An exception in $! shows exit and signals.
    def exiting?
      error = $!
      Thread.current.status == "aborting" || !(error.nil? || error.is_a?(StandardError) || error.is_a?(ScriptError))
    end
  end
end

# frozen_string_literal: true

module Reactor
  # The beginning and the end of a scheduler. A scheduler belongs to one thread; see {#run}.
  module Lifecycle
    include Schedulers::Member

    UNINTERRUPTED = { Object => :never }.freeze
    private_constant :UNINTERRUPTED

    # Ends the run because of its cause. It is not a StandardError, so the scheduler cancels all other fibers.
    #
    # @api private
    Failure = Class.new(Exception)

    # @param backend [Symbol, String, nil] see {Reactor.backends}; nil: REACTOR_BACKEND, else the best
    # @param stall [Numeric, nil] seconds, more than 0, that a fiber may hold the loop before it is reported, see {StallDetector};
    #   nil: no limit
    # @param on_stall [#call, nil] is given each {Stall}, on a thread of its own, for whose last reports the end waits up to a second;
    #   nil: it is written to $stderr
    # @param on_error [#call, nil] is given each error that ends a fiber, and the fiber, as described for {#run}; nil: the error
    #   is reported
    # @param workers [Integer, nil] maximum number of worker threads, for work that Ruby code or its C extensions do with the GVL
    #   released, see {Offload#offload}; nil: one per processor, but at least 4. Workers start on demand.
    # @param policy [Symbol] which of the operations that Ruby 3.4 and later offer to the scheduler (see
    #   `blocking_operation_wait`) run on a worker; :measured: slow ones; :always: all; :never: none, as in every Ractor but the
    #   main one
    # @raise [ArgumentError] the backend is unknown, or unavailable for the reason in the message; stall is not positive; the
    #   policy is unknown; workers is below 1
    # @raise [TypeError] stall is not a duration; on_stall or on_error does not respond to call; workers is not an Integer
    def initialize(backend: nil, stall: nil, on_stall: nil, on_error: nil, workers: nil, policy: :measured)
      { on_error:, on_stall: }.each do |name, callback|
        raise TypeError, "#{name} must respond to call" unless callback.nil? || callback.respond_to?(:call)
      end

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

    # @return [Boolean] whether a fiber may wait for a thread of its Ractor. Outside the main Ractor, Ruby may lose a wake-up, or
    #   crash, when it moves this thread to another native thread. Ruby 3.3 may always do that, 3.4 unless this thread is locked to
    #   its native thread.
    # @api private
    def may_wait_for_threads? = @may_wait_for_threads

    # @raise [TypeError] always: a copy would share the original's descriptors
    def initialize_copy(_other) = raise(TypeError, "cannot copy #{self.class}")

    # Runs every fiber made by `Fiber.schedule` to completion, and waits for every watcher of {Watching#on_ready} that is not
    # transient.
    #
    # An error that escapes a fiber is reported when it happens. The other fibers continue, and the first such error is raised
    # here at the end. SystemExit, Interrupt and every other error that is neither a StandardError nor a ScriptError ends the run
    # at once: the remaining fibers are cancelled, their ensure clauses run, and then the error is raised here. The run ends the
    # same way on any error that Thread#raise or a trap handler raises on this thread while the scheduler sleeps. If such an error
    # comes while a fiber has control, Ruby raises it in that fiber; unless the fiber rescues it, it escapes the fiber like any
    # other error.
    #
    # With `on_error:`, each error that would be reported is passed to that callback instead, along with the fiber. The callback runs
    # in this fiber and sees its storage. The error then counts as handled, and is not raised here. `on_error` may wait; `exit` in it
    # ends the run. If it raises, or if the fiber is ended meanwhile, the error is reported and raised here after all. For an error in
    # a callback of a {Server}, `on_error` runs in the fiber that called that callback; for an error that a {Group} does not
    # raise, in the fiber that opened the group. When there is no memory for the fiber of a {Watcher}, `on_error` is given the
    # watcher, and if it waits, it blocks the thread.
    #
    # An error before a fiber's first wait is raised by Fiber.schedule.
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
      abandon unless ended || nothing_left? # in ensure, because no rescue sees a kill of the thread
    end

    # Closes this scheduler: ends its fibers as described for {#scheduler_close}, closes its descriptors, and removes it from the
    # thread. Does nothing when called again or in a forked child.
    #
    # @return [nil]
    # @raise [ThreadError, FiberError] as {#run}; then the scheduler is unchanged
    def close
      forbid_own_fibers unless closed?
      if Fiber.scheduler.equal?(self)
        Fiber.set_scheduler(nil) # this calls scheduler_close
      else
        scheduler_close
      end
      nil
    end

    # Ends every watcher, and asks every live fiber to end; see {NativeScheduler#cancel}. Servers close their connections here,
    # because no new fibers will serve them.
    #
    # @param reason for {Cancelled#reason}; by default, the error that ends the run
    # @return [nil]
    # @raise as NativeScheduler#cancel
    # @api private
    def cancel(reason = $!.is_a?(Failure) ? $!.cause : $!)
      @servers&.each_key(&:abandon) unless forked_child?
      super
    end

    # @param server [Server] is told when the fibers and watchers are cancelled, until {#forget_server}
    # @api private
    def add_server(server) = (@servers ||= {}.compare_by_identity)[server] = true

    # @api private
    def forget_server(server) = @servers&.delete(server)

    # Called when there was no memory for the fiber of a watcher. The watcher may belong to a server.
    #
    # @api private
    def recover_servers(block, io) = @servers&.each_key { |server| server.recover(block, io) }

    # @return [Boolean] whether a server's watchers of connections have this block
    # @api private
    def serves?(block) = !@servers.nil? && @servers.each_key.any? { |server| server.serves?(block) }

    # The hook that Ruby calls at the end of the thread, at the end of the program (before at_exit) and in Fiber.set_scheduler. It
    # cancels the fibers if the thread is being killed or the program is exiting; otherwise it runs them to completion.
    #
    # @return [nil]
    # @raise [ThreadError, FiberError] as {#run}; then the scheduler stays open, but Ruby may have removed it from the thread, as
    #   it does after Fiber.set_scheduler
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

    # Called when an error that nobody can rescue has ended a fiber of the program or one of its callbacks.
    #
    # @param error [StandardError, ScriptError]
    # @param fiber [Fiber, Watcher]
    # @param by [Group, nil] in which the error came, if it ended no fiber
    # @return [Boolean] whether `on_error` has handled it; otherwise it has been reported, whatever `on_error` did
    # @raise [Exception] an error that stops the program, raised by `on_error`
    # @api private
    def report_error(error, fiber = Fiber.current, by: nil)
      taken = false
      @on_error&.call(error, fiber)
      taken = !@on_error.nil?
    rescue StandardError, ScriptError => own
      report(@on_error, own, "raised an exception while handling an error")
      false
    ensure
      by ? report(by, error, "has another error") : report(fiber, error) unless taken
    end

    private

    def report(who, ...)
      VM.report_error(Fiber === who ? FiberName.describe(who) : who, ...)
    ensure
      return # rubocop:disable Lint/EnsureReturn -- drops errors of the report, and kills
    end

    def nothing_left? = live.zero? && watchers.empty?

    # @return [Float] seconds, by the clock that sleeps and timeouts use
    def now = Clock.now

    def end_loop_and_threads
      shutdown
      Schedulers.unregister(self)
      @offload.stop
      @starter = nil # its stack may refer to an earlier scheduler, whose starter refers to a still earlier one
    end

    # Ends the remaining fibers. A signal also ends the waits in their ensure clauses, as it does at the end of a program whose threads
    # have such clauses. Fibers whose clauses wait for one another never end, and are abandoned.
    def abandon
      cancel
      begin
        drain
      rescue Exception => error # rubocop:disable Lint/RescueException -- the first error is the one to report
        return if nothing_left? || error.is_a?(VM::FATAL)

        cancel if error.is_a?(SignalException)
        retry
      end
    end

    # Thread#kill shows in the thread's status or as an Integer in $!; exit and signals show as an exception in $!.
    def exiting?
      error = $!
      Thread.current.status == "aborting" || !(error.nil? || error.is_a?(StandardError) || error.is_a?(ScriptError))
    end
  end
end

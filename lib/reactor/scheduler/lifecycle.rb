# frozen_string_literal: true

module Reactor
  # What a scheduler does at its beginning and its end, and what it builds out of the selector's primitives: policy,
  # written once for all selectors. Stands between {Scheduler} and its selector.
  module Lifecycle
    include Inspection

    # @param backend [Symbol, String, nil] see {Reactor.backends}; nil: REACTOR_BACKEND, else the best
    # @param stall [Numeric, nil] seconds a fiber may hold the loop before it is reported, see {StallDetector}; nil: any time
    # @param on_stall [#call, nil] is given each {Stall}, on a thread of its own; nil: it is written to $stderr
    # @param workers [Integer, nil] how many threads there may be for work that Ruby code or its C extensions do with the
    #   GVL released, see {#offload}; nil: as many as processors, but at least 4. None is started before it is needed.
    # @param policy [Symbol] which of the operations that Ruby offers to hand over (3.4 and later, see
    #   {#blocking_operation_wait}) are handed over to them: :measured, those that take long; :always; :never, as in every Ractor but the main one
    # @raise [ArgumentError] the backend is unknown or cannot be had here, and says why; stall is no span of time; there is
    #   no such policy; no workers
    # @raise [TypeError] stall is no duration; on_stall cannot be called; workers is no Integer
    def initialize(backend: nil, stall: nil, on_stall: nil, workers: nil, policy: :measured)
      stalls = StallDetector.new(self, stall, on_stall) if stall
      @offload = OffloadPolicy.new(policy, workers.nil? ? OffloadPolicy::WORKERS : workers)
      Reactor.stay if RUBY_VERSION.start_with?("3.4") # or Ruby might move this thread under its fibers
      super(Reactor.choose(backend))
      Installation.of(Closing, Files, Resolving)
      Closing.register(self)
      Installation.of(Sending) if self.backend == :uring
      return unless stalls

      @stalls = stalls
      singleton_class.prepend(StallDetector::Hook)
    end

    # Runs a block on a worker thread while the fiber is parked: for what blocks or computes with the GVL released and
    # is not known to Ruby as such (a call into a C library; opening a FIFO). Elsewhere than in a fiber of the
    # scheduler's, the block is just run.
    #
    # If the fiber is interrupted, the block is: it is raised at, and the fiber goes on when it has ended.
    #
    # @return what the block returns
    # @raise what the block raises; ThreadError if the worker was killed
    def offload(&block)
      raise ArgumentError, "no block given" unless block
      return yield unless Fiber.current_scheduler.equal?(self) && !inert?

      @offload.hand_over(&block)
    end

    # As {#offload}, for what only waits, perhaps for long, and perhaps for another fiber: it takes no worker from others.
    #
    # @return what the block returns
    # @raise what the block raises
    # @api private
    def wait_out(&block)
      return yield unless Fiber.current_scheduler.equal?(self) && !inert? && !closed?

      @offload.wait_out(&block)
    end

    # Does some work here if work from this place has been cheap so far, else by a worker; see {#initialize}.
    #
    # @param place [Object]
    # @param work [#call]
    # @return what the work returns
    # @api private
    def weigh(place, work)
      return Fiber.blocking { work.call } unless Fiber.current_scheduler.equal?(self) && !inert? && !closed?

      @offload.call(place, work)
    end

    # What {Selector#blocking_operation_wait} leaves to the VM, unless an override called it. IO.copy_stream holds up the
    # loop then where it waits.
    #
    # @param work [#call]
    # @return what the work returns
    # @api private
    def carry_out(work) = Fiber.blocking { work.call }

    # @return [Hash{Symbol => Integer}] what has been done so far
    def stats = super.merge(@offload.stats)

    # Runs every fiber made by `Fiber.schedule` to its end.
    #
    # An error that escapes a fiber is reported when it happens; the others keep running, and the first such error is
    # raised here at the end. What is neither StandardError nor ScriptError (SystemExit, Interrupt), and whatever is
    # raised on this thread from outside meanwhile, ends the run at once: the remaining fibers are cancelled, their
    # ensure clauses served, and then it goes on from here.
    #
    # @return [nil]
    # @raise [RuntimeError] the scheduler is closed
    # @raise [ThreadError] it belongs to another thread
    # @raise [FiberError] called from one of the fibers it would have to wait for
    def run
      ended = false
      drain
      ended = true
      nil
    ensure
      abandon unless ended || live.zero? # also when the thread is killed, which no rescue sees
    end

    # Ends this scheduler: its fibers as {#scheduler_close} says, its descriptors, and its time as the thread's current
    # one. May be called again; does nothing in a forked child.
    #
    # @return [nil]
    # @raise whatever {#run} raises
    def close
      if Fiber.scheduler.equal?(self)
        Fiber.set_scheduler(nil) # which calls scheduler_close
      else
        scheduler_close
      end
      nil
    end

    # The hook for the end of the thread, the end of the program (before at_exit) and Fiber.set_scheduler. If the thread
    # is being killed or the program is leaving, the fibers are cancelled; otherwise they run to their end.
    #
    # @return [nil]
    # @raise whatever {#run} raises
    def scheduler_close
      return if closed?

      begin
        cancel if leaving?
        run
      ensure
        shutdown
        @offload.close
      end
    end

    # Process.wait and its kin, Process::Status.wait, system, backticks, the end of IO.popen. One child, on Linux, is waited
    # for by its pidfd (pidfd_open(2), Linux 5.3); any child, a group, a stopped one, or elsewhere: by a thread that learns
    # of the event and leaves the child to us (waitid(2)), one for all the fibers that ask the same, who take turns. The
    # portable selector looks now and then.
    #
    # So a wait that is interrupted has taken nothing: the child is there for whoever asks next.
    #
    # Asks first, as everywhere: who is no child of ours is an error at once.
    #
    # @param pid [Integer] as waitpid(2): a child, -1 any, 0 our group, below: that group
    # @param flags [Integer] Process::WUNTRACED or 0; with Process::WNOHANG Ruby does not ask us
    # @return [Process::Status] also for an error such as ECHILD, which the caller raises
    def process_wait(pid, flags)
      return Fiber.blocking { Process::Status.wait(pid, flags) } if inert?

      self.yield # children that are quickly done would let nobody run
      descriptor = Reactor.pidfd(pid) if pid.positive? && flags.nobits?(Process::WUNTRACED)
      descriptor ? await_exit(descriptor, pid, flags) : taking_turns([pid, flags]) { await_change(pid, flags) }
    end

    # IO.select and Kernel#select.
    #
    # IO.select itself, asked not to wait, tells the truth (it knows Ruby's read buffers and tied writers); between two
    # questions the fiber parks on all the descriptors at once.
    #
    # @param readables [Array<IO, #to_io>, nil]
    # @param writables [Array<IO, #to_io>, nil]
    # @param exceptables [Array<IO, #to_io>, nil]
    # @param timeout [Numeric, nil] seconds; nil: for ever; 0: only look
    # @return [Array(Array, Array, Array), nil] the very objects that were given; nil when the time is over
    # @raise [IOError, TypeError, ArgumentError, RangeError] as IO.select does
    def io_select(readables, writables = nil, exceptables = nil, timeout = nil)
      return Fiber.blocking { IO.select(readables, writables, exceptables, timeout) } if inert?
      raise "closed scheduler" if closed?

      seconds = PortableScheduler.seconds(timeout)
      deadline = seconds && now + seconds
      loop do
        ready = look_at(readables, writables, exceptables)
        return ready if ready

        masks = masks_of(readables, writables, exceptables)
        left = deadline && [deadline - now, 0].max
        return if left&.zero? || !wait_any(masks.keys, masks.values, left)
      end
    end

    private

    # What the clock of sleeps and timeouts shows, in seconds.
    def now = PortableScheduler.now

    def await_exit(descriptor, pid, flags)
      io = IO.for_fd(descriptor, "r")
      until (status = Process::Status.wait(pid, flags | Process::WNOHANG))
        io_wait(io, IO::READABLE, nil)
      end
      status
    ensure
      io&.close
    end

    def await_change(pid, flags)
      waited = 0 # by real clocks, whatever time the program is shown
      until (status = Process::Status.wait(pid, flags | Process::WNOHANG))
        waited = await_child(pid, flags, waited)
      end
      status
    end

    # Fibers that wait for the same thing, one after the other.
    def taking_turns(key)
      @turns ||= Hash.new { |turns, wanted| turns[wanted] = [Thread::Mutex.new, 0] }
      turn = @turns[key]
      turn[1] += 1
      turn[0].synchronize { yield }
    ensure
      @turns.delete(key) if turn && (turn[1] -= 1).zero?
    end

    # Makes an end with fibers that were to go on. A second signal meanwhile means it, and
    # fibers whose ensure clauses wait for one another never end: what is left then is left.
    def abandon
      cancel
      begin
        drain
      rescue Exception => error # rubocop:disable Lint/RescueException -- the first error is the one to be told
        retry unless live.zero? || error.is_a?(SignalException) || error.is_a?(PortableScheduler::FATAL)
      end
    end

    # Thread#kill shows in the status (and as an Integer in $!), exit and signals in $!.
    def leaving?
      error = $!
      Thread.current.status == "aborting" || !(error.nil? || error.is_a?(StandardError) || error.is_a?(ScriptError))
    end

    # Looking lets other threads in, and one of them may close what is being looked at.
    def look_at(*lists)
      Fiber.blocking { IO.select(*lists, 0) }
    rescue Errno::EBADF
      raise unless lists.compact.flatten.any? { |object| IO.try_convert(object).closed? }

      raise IOError, "stream closed in another thread"
    end

    # Each IO once, with everything wanted of it.
    def masks_of(readables, writables, exceptables)
      masks = Hash.new(0).compare_by_identity
      { IO::READABLE => readables, IO::WRITABLE => writables, IO::PRIORITY => exceptables }.each do |event, list|
        list&.each { |object| masks[IO.try_convert(object)] |= event }
      end
      masks
    end
  end
end

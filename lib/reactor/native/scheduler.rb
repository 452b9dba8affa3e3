# frozen_string_literal: true

require_relative "../scope"
require_relative "../vm"

module Reactor
  # The hooks of {Scheduler}, written in Rust (ext/reactor/src/hooks).
  #
  # A fiber that has to wait *parks*: it records what ends its wait (a descriptor, a time, an unblock), and gives control to the
  # first fiber in the ready queue. There is no loop fiber: if no fiber is ready, the parking fiber polls the kernel itself, and if
  # its own wait ends first, it simply continues. Control is handed over by Fiber#transfer, which does not interfere with the
  # program's own Enumerators and fibers.
  #
  # Each wait has a number, which its events carry. An event that arrives when its wait has ended is dropped, so there are no stale
  # wake-ups.
  #
  # ### Attributes
  #
  # @!attribute [r] backend
  #   @return [Symbol] one of {Reactor.backends}
  # @!attribute [r] live
  #   @return [Integer] number of unfinished fibers made by {#fiber}
  # @!attribute [r] watchers
  #   @return [Array<Watcher>] every waiting watcher
  # @!method closed?
  #   @return [Boolean] whether it is closed; true in a forked child, because the descriptors belong to the parent
  # @!method forked_child?
  #   @return [Boolean] whether this process is a forked child of the one that made the scheduler; see {Patches::ForkedChild}
  #
  # @!method fiber(*arguments, **options, &block)
  #   The hook for Fiber.schedule: makes a fiber and runs it at once, until its first wait.
  #
  #   An exception before the first wait is raised in the caller. A later StandardError or ScriptError is reported on stderr (if
  #   the thread reports on exceptions), kept, and raised by {Lifecycle#run} when all fibers have ended. Any other exception
  #   (SystemExit, Interrupt, NoMemoryError) is raised in the root fiber at once. If a trap handler calls this in the middle of a
  #   wait, the fiber starts later, when it is its turn.
  #   @param arguments passed to the block
  #   @param options passed to Fiber.new (storage:)
  #   @return [Fiber] non-blocking; its storage is a copy of the caller's unless the options say otherwise
  #   @raise [RuntimeError] the scheduler is closed, or the process is a forked child
  #   @raise [ThreadError] the scheduler belongs to another thread
  #   @raise [ArgumentError] no block given
  # @!method yield
  #   Called by Ruby 4.0 and later inside long operations: lets the other ready fibers run first.
  #   @return [nil]
  # @!method kernel_sleep(duration = nil)
  #   The hook for Kernel#sleep and Mutex#sleep, and so for ConditionVariable#wait.
  #   @param duration [Numeric, nil] seconds; nil: until {#unblock}; 0: moves the fiber to the back of the ready queue
  #   @return [true]
  #   @raise [ArgumentError, TypeError, RangeError] as Kernel#sleep
  # @!method block(blocker, timeout = nil)
  #   The hook for Mutex#lock, Queue#pop, SizedQueue#push, Thread#join, Thread#value: waits for {#unblock} of this fiber.
  #   @param blocker the object waited for
  #   @param timeout [Numeric, nil] seconds; negative numbers count as 0, as for Thread#join and Queue#pop
  #   @return [Boolean] true if the fiber was unblocked; false when the timeout elapses
  #   @raise [TypeError] timeout is not a duration
  # @!method unblock(blocker, fiber)
  #   Ends the fiber's {#block} or {#kernel_sleep}. If the fiber is in neither, it does nothing: a late unblock shortens no wait.
  #   But if a subclass overrides {#block} or {#kernel_sleep}, the fiber may be about to begin that wait. The wait then ends at
  #   once. Any thread and any trap handler may call this. It never waits, switches fibers or raises.
  #   @param blocker unused
  #   @param fiber [Fiber]
  #   @return [nil]
  # @!method timeout_after(duration, exception, message = nil, &block)
  #   The hook for Timeout.timeout: runs the block, and when the time limit elapses, raises where the block waits, even inside an
  #   Enumerator. It never raises after the block has ended.
  #   @param duration [Numeric, nil] seconds; nil: no limit; a negative number elapses at once
  #   @param exception [Class, Exception]
  #   @param message [String, nil] nil: the exception is an instance, and is raised as it is
  #   @yieldparam duration [Numeric]
  #   @return what the block returns
  #   @raise [TypeError] duration is not a duration
  # @!method fiber_interrupt(fiber, exception)
  #   The hook for IO#close on Ruby 4.0 and later: raises in a fiber that waits for the IO being closed. The exception is only
  #   recorded here. It is raised when it is the fiber's turn, unless the fiber's wait has ended by then. If the fiber is blocking,
  #   this raises in its thread. Any thread may call this.
  #   @param fiber [Fiber, #raise] from Ruby 4.1 on, a stand-in that responds to alive? and raise
  #   @param exception [Exception]
  #   @return [Boolean] whether the exception will be raised
  #   @raise [TypeError] exception is not an exception object, or fiber is neither a Fiber nor responds to raise
  #
  # @!method io_wait(io, events, timeout = nil)
  #   Waits until the IO is ready. Without a timeout, IO#timeout applies.
  #   @param io [IO]
  #   @param events [Integer] IO::READABLE | IO::WRITABLE | IO::PRIORITY
  #   @param timeout [Numeric, nil] seconds; nil: IO#timeout if set, otherwise no limit; 0: does not wait
  #   @return [Integer, false] those of the events that have occurred, never 0; false when the timeout elapses
  #   @raise [IOError] the IO is closed, or not open in this direction
  #   @raise [TypeError, ArgumentError, RangeError] io, events or timeout has the wrong type or is out of range
  # @!method io_read(io, buffer, length, offset)
  #   The hook for IO#read and related methods. These are the arguments up to Ruby 4.0. From 4.1 on they are (io, buffer,
  #   offset, length), where `length` is a maximum instead of a minimum, and there is one attempt that does not wait.
  #   @param io [IO]
  #   @param buffer [IO::Buffer]
  #   @param length [Integer] minimum number of bytes; waits for them if necessary; 0: one attempt that does not wait
  #   @param offset [Integer] where to put the bytes in the buffer
  #   @return [Integer] number of bytes read, 0 at the end of the file; -errno, in particular -EAGAIN, after which Ruby waits
  #   @raise [TypeError, ArgumentError, IOError] a wrong type; beyond the end of the buffer; a closed IO
  # @!method io_write(io, buffer, length, offset)
  #   The hook for IO#write and related methods; see {#io_read}.
  # @!method io_pread(io, buffer, from, length, offset)
  #   The hook for IO#pread; see {#io_read}. From Ruby 4.1 on, the arguments are (io, buffer, from, offset, length).
  #   @param from [Integer] position in the file
  # @!method io_pwrite(io, buffer, from, length, offset)
  #   The hook for IO#pwrite; see {#io_pread}. Defined from Ruby 4.0 on: earlier versions call it with the GVL released.
  # @!method io_close(descriptor)
  #   Called by Ruby 4.0 and later, also from finalizers.
  #   @param descriptor [Integer]
  #   @return [Boolean] whether the descriptor was closed here; if not, Ruby closes it, because closing it may block
  # @!method blocking_operation_wait(work)
  #   Called by Ruby 3.4 and later with work that it can do with the GVL released; see {Offload} and the `policy:` of
  #   {Lifecycle#initialize}.
  #
  # ### Methods that {Lifecycle} builds on
  #
  # @!method drain
  #   Runs until every fiber made by {#fiber} and every non-transient watcher has ended.
  #   @return [nil]
  #   @raise the first error that escaped a fiber
  #   @raise [FiberError] called from one of the scheduler's fibers
  #   @raise [RuntimeError] the scheduler is closed
  #   @raise [ThreadError] the scheduler belongs to another thread
  #   @api private
  # @!method cancel(reason)
  #   Ends every watcher, and raises {Cancelled} in every live fiber, where it waits. The fibers end in {#drain}: it serves their
  #   ensure clauses, however long these wait.
  #   @param reason for {Cancelled#reason}
  #   @return [nil]
  #   @raise as #drain
  #   @api private
  class NativeScheduler
    # The body of every fiber of a native scheduler: runs the block, and reports how it ended.
    #
    # It is Ruby code, because a block called from C takes 1.3 kB of frames on the machine stack: every parked fiber would keep
    # these frames, and every garbage collection would scan them.
    #
    # `ended`, a function of the extension, is called however the block ends: normally, by an exception, or by something that no
    # rescue sees (Fiber#kill, Thread#kill, throw). No other code can call it, and its name is not looked up again for each fiber.
    #
    # @api private
    module FiberBody
      BODY = Ractor.make_shareable(
        proc do |scheduler, block, arguments|
          arguments ? block.call(*arguments) : block.call
        rescue Cancelled
          nil
        rescue Exception => error # rubocop:disable Lint/RescueException -- the scheduler decides how to handle it
          nil
        ensure
          raise error if ended(scheduler, error)
        end
      )
    end
    private_constant :FiberBody

    define_fiber_body(FiberBody::BODY)
    private_class_method :define_fiber_body

    # Methods for rarely used paths. They are written in Ruby, and the extension calls them by name. (It also calls
    # `deadlock_message`, `wakeable_from_outside?`, `run_by_cost` and `run_inline`, which every scheduler has.)

    private

    # @return [Fiber] gives control to new fibers on behalf of blocking ones
    def starter
      make_starter unless @starter.usable?
      @starter.fiber
    end

    def make_starter = @starter = VM::Starter.new

    # Blocks the thread, because the fiber that happens to poll calls this: no other fiber may run meanwhile.
    def report_unborn(error, watcher) = Fiber.blocking { report_error(error, watcher) }

    # What a fiber raises that ends with the scheduler.
    def cancellation(reason) = Cancelled.new(reason)

    # Whether a fiber whose wait ends by this exception of a time limit or an interruption waits on: it is in an ensure or rescue clause
    # that another {Cancelled} runs, and that one ends the block, too.
    def spares_clause?(exception) = exception.is_a?(Cancelled) && exception.second_to?($!)

    # The same for a fiber that has resumed an Enumerator's, or one of its own making, which waits. The VM does not tell in which clause
    # the first fiber is, so only a shield there keeps it whole.
    def spares_suspended?(exception, waiting) = exception.is_a?(Cancelled) && Scope.hold_for(waiting)

    # Called when a fiber that has been cancelled with the scheduler waits again. If it is in an ensure or rescue clause, it is
    # ending. Otherwise it has swallowed the cancellation.
    #
    # @param times [Integer] how often it has been cancelled
    # @return [Cancelled, Symbol, nil] what it raises instead of waiting; a Symbol: it is killed; nil: it waits
    def cancel_again(times, reason)
      return if $!

      times < 3 ? cancellation(reason) : :kill
    end

    def hand_on_mutex(blocker) = VM.hand_on_mutex(blocker)

    # Waits until Process.wait may have a result; takes no child.
    def await_child(pid, flags)
      (pid.positive? && await_exit(pid)) || ChildEvents.await(pid, flags)
    end
  end

  class << Internal
    # Runs the block in one Ractor at a time. Two Ractors hardly ever get here at once, so the second one polls.
    #
    # @api private
    def exclusively
      sleep 0.001 until lock_patches
      begin
        yield
      ensure
        unlock_patches
      end
    end
  end
end

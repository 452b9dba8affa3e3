# frozen_string_literal: true

require_relative "../clock"
require_relative "../durations"
require_relative "../histogram"
require_relative "../hooks_in_forked_child"
require_relative "../transfer_loop"
require_relative "../vm"
require_relative "deliveries"
require_relative "descriptors"
require_relative "fiber_lifecycle"
require_relative "lookup"
require_relative "loop"
require_relative "observation"
require_relative "shuffled"
require_relative "sleep"
require_relative "timers"
require_relative "transfers"
require_relative "waits"
require_relative "watching"

module Reactor
  # The portable scheduler: all hooks in plain Ruby on top of IO.select. It runs wherever Ruby runs. It is also the specification
  # of the native scheduler, which has the same methods with the same results and errors.
  #
  # ### How it works
  #
  # A fiber that has to wait *parks*: it makes a {Wait}, records what ends it (a descriptor, a time, an unblock), and gives
  # control to the first fiber in the ready queue. There is no loop fiber: if no fiber is ready, the parking fiber polls the
  # kernel itself, and if its own wait ends first, it simply continues. Control is handed over by Fiber#transfer, which does not
  # interfere with the program's own Enumerators and fibers.
  #
  # Each wait is a new object, made for one park and marked when it has ended. Because of the mark, an event that arrives later
  # (readiness, a time, an unblock, an error) is dropped, so there are no stale wake-ups.
  #
  # An entry stays in the ready queue until its wait has ended. So an exception between reading the queue and handing over control
  # (Thread#raise, a signal) loses nothing. For the same reason, a fiber is woken in a single step, an append to the ready queue,
  # which other threads and trap handlers may do as well.
  #
  # ### Limitations
  #
  # IO.select does not report a hang-up when only writability or priority was requested, and its cost grows with the number of
  # descriptors. The end of a child is noticed up to 50 ms late.
  class PortableScheduler
    # Defines io_read and io_write for one version of the scheduler interface. Called once below. Tests call it again, to run both
    # versions on any Ruby.
    #
    # @param scheduler [Class]
    # @param contract [Integer] 3: (io, buffer, length, offset), where length is a minimum; 4: (io, buffer, offset, length), where
    #   it is a maximum
    # @api private
    def self.define_transfers(scheduler, contract) = scheduler.include(contract >= 4 ? AtMost : AtLeast)

    # @param backend [Symbol, String, nil] only :select is allowed
    # @raise [ArgumentError] any other backend
    # @raise [RuntimeError] the scheduler is initialized already
    # @raise [SystemCallError] no descriptors left
    def initialize(backend = nil)
      raise ArgumentError, "the portable scheduler has no backend #{backend.inspect}" unless [nil, "select"].include?(backend&.to_s)
      raise "already initialized" if @descriptors

      @descriptors = Descriptors.new
      @thread = Thread.current
      @pid = Process.pid
      @closed = false
      @polling = false
      @ready = []                        # entries to serve, in this order
      @waits = {}.compare_by_identity    # fiber => its innermost Wait; keeps parked fibers alive
      @beginning = false                 # whether a fiber is in #begin_block
      @early_unblocks = ObjectSpace::WeakMap.new # fibers unblocked on their way into #block or #kernel_sleep
      @owners = ObjectSpace::WeakMap.new # fiber not made by #fiber => the fiber on whose behalf it runs
      @killed = ObjectSpace::WeakMap.new # fiber that a kill is unwinding => true
      @suspects = {}.compare_by_identity # fiber that may have been killed, because a fiber it resumed got an error => true
      @live = {}.compare_by_identity     # fibers made by #fiber or a watcher => the Proc or Watcher that they run
      @cancelled = {}.compare_by_identity # live fibers that have been asked to end => true
      @cancelling = false
      @timers = Timers.new
      @watches = {}.compare_by_identity  # each waiting {Watch} => true
      @running = nil                     # the last fiber that was given control
      @resumes_since_poll = 0
      @nonblocking = ObjectSpace::WeakMap.new # IO => whether transfers never wait, on Windows
      @transfers = 0                     # calls of io_read and io_write, except for files
      @clock = Clock.now                 # when the last poll ended
      @unblock_only_sleeps = 0           # successive sleeps that only an unblock could end
      start_poller
      @starter = VM::Starter.new
      @recorder = Recorder.new
    end

    # @return [Symbol] :select
    def backend = :select

    # @return [Boolean] whether it is closed; true in a forked child, because the descriptors belong to the parent
    def closed? = forked_child? || @closed

    # @return [Boolean] whether this process is a forked child of the one that made the scheduler. The hooks then do what Ruby
    #   does without a scheduler.
    def forked_child? = Process.pid != @pid

    # @return [Integer] number of unfinished fibers made by `fiber`
    def live = @live.size

    # Releases the descriptors. Any later use raises, except that a late unblock and a second call do nothing.
    #
    # @return [nil]
    # @raise [ThreadError] called on another thread
    # @raise [FiberError] called from one of the scheduler's fibers
    # @api private
    def shutdown
      return unless !closed? && enter

      forbid_own_fibers
      cancel_watchers
      @closed = true
      @poller = @next_poller = nil # for the same reason as Lifecycle drops the starter
      @descriptors.close
      nil
    end

    # Makes the time of sleeps and timeouts virtual: stops their clock.
    #
    # @param settle [Numeric] real seconds to wait for other events before a jump
    # @raise [RuntimeError] time is virtual already
    # @api private
    def virtual_time(settle)
      raise "this scheduler is closed, or its time is already virtual" if @timers.virtual_now || closed?

      @timers.stop_clock(Durations.seconds(settle))
    end

    # @return [Integer, nil] nanoseconds of virtual time since it started
    # @api private
    def virtual_elapsed = @timers.virtual_now && (@timers.virtual_now * 1_000_000_000).to_i

    # Any thread and any trap handler may call this.
    #
    # @param begins [Boolean] true stops the clock from jumping, until a call with false
    # @api private
    def virtual_hold(begins)
      @timers.hold(begins)
      wake_poll unless begins # because IO.select continues to sleep after a trap handler
    end

    # --- hooks: time and other fibers ------------------------------------------------------------------------------

    # The hook for Kernel#sleep and Mutex#sleep, and so for ConditionVariable#wait.
    #
    # @param duration [Numeric, nil] seconds; nil: until {#unblock}; 0: moves the fiber to the back of the ready queue
    # @return [nil]
    # @raise [ArgumentError, TypeError, RangeError] as Kernel#sleep
    def kernel_sleep(duration = nil)
      park(begin_block(:sleep), duration)
      nil
    end

    # The hook for Mutex#lock, Queue#pop, SizedQueue#push, Thread#join, Thread#value: waits for {#unblock} of this fiber.
    #
    # @param blocker the object waited for
    # @param timeout [Numeric, nil] seconds; negative numbers count as 0, as for Thread#join and Queue#pop
    # @return [Boolean] true if the fiber was unblocked; false when the timeout elapses
    # @raise [TypeError] timeout is not a duration
    def block(blocker, timeout = nil)
      wait = begin_block(:block) # must be the first line
      park(wait, timeout, lenient: true)
      parked = true
      wait.events == :unblocked
    ensure
      VM.hand_on_mutex(blocker) unless parked
    end

    # Ends the fiber's {#block} or {#kernel_sleep}. If the fiber is in neither, it does nothing: a late unblock shortens no wait.
    # But if a subclass overrides {#block} or {#kernel_sleep}, the fiber may be about to begin that wait. The wait then ends at
    # once. Any thread and any trap handler may call this. It never waits, switches fibers or raises.
    #
    # @param blocker unused
    # @param fiber [Fiber]
    # @return [nil]
    def unblock(blocker, fiber) = Thread.handle_interrupt(VM::UNBLOCK_MASK) { end_blocks(fiber) }

    # The hook for IO#close on Ruby 4.0 and later: raises in a fiber that waits for the IO being closed. The exception is only
    # recorded here. It is raised when it is the fiber's turn, unless the fiber's wait has ended by then. Any thread may call
    # this.
    #
    # @param fiber [Fiber, #raise] from Ruby 4.1 on, a stand-in that responds to alive? and raise
    # @param exception [Exception]
    # @return [Boolean] whether the exception will be raised
    # @raise [TypeError] exception is not an exception object, or fiber is neither a Fiber nor responds to raise
    def fiber_interrupt(fiber, exception)
      raise TypeError, "exception object expected" unless Exception === exception
      raise TypeError, "expected a fiber or an object that responds to raise" unless Fiber === fiber || defined?(fiber.raise)
      return false if closed?

      if Fiber === fiber
        wait = @waits[fiber]
        return false unless wait&.masks

        wait.error ||= [exception]
        enqueue(wait)
      else
        enqueue(Delivery.new(fiber, [exception]))
      end
      wake_poll
      true
    end

    # Raises IOError in the fibers that wait for an IO object that is about to be closed. Any thread may call this.
    #
    # @param io [IO]
    # @return [Symbol, nil] :interrupted if there were any
    # @api private
    def prepare_close(io)
      return if closed?

      waits = @descriptors.waits_for(io).each { |wait| interrupt_closed(wait, :closed) }
      wake_poll unless waits.empty?
      :interrupted if waits.any?(Wait)
    end

    # Called before IO#close_read and #close_write. If that call closes a descriptor, {#replaced} is called afterwards.
    #
    # @api private
    def prepare_half_close(_io, _reading) = nil

    # Called before IO#reopen. No worker of this scheduler uses an IO's descriptor.
    #
    # @api private
    def prepare_reopen(_io) = nil

    # Called after the IO was reopened or closed. Its watchers end. Its fibers continue to wait, now for the new file. But if
    # `interrupts` is true, fibers that wait for this IO alone get IOError. Any thread may call this.
    #
    # @param io [IO]
    # @param interrupts [Boolean]
    # @return [nil]
    # @api private
    def replaced(io, interrupts)
      return if closed?

      @nonblocking.delete(io)
      @descriptors.waits_for(io).each do |wait|
        interrupt_closed(wait, :reopened) if wait.is_a?(Watch) || (interrupts && wait.kind == :io)
      end
      wake_poll
      nil
    end

    # Called after the reading half of the socket was shut down. Windows does not report that, so waits for reading end here.
    #
    # @param io [BasicSocket]
    # @return [nil]
    # @api private
    def note_read_shutdown(io)
      return if closed?

      @descriptors.waits_for(io).each do |wait|
        next unless wait.masks[io].anybits?(IO::READABLE)

        wait.events |= IO::READABLE
        enqueue(wait)
      end
      wake_poll
      nil
    end

    # --- hooks: descriptors ----------------------------------------------------------------------------------------

    # Waits until the IO is ready. Without a timeout, IO#timeout applies.
    #
    # @param io [IO]
    # @param events [Integer] IO::READABLE | IO::WRITABLE | IO::PRIORITY
    # @param timeout [Numeric, nil] seconds; nil: IO#timeout if set, otherwise no limit; 0: does not wait
    # @return [Integer, false] those of the events that have occurred, never 0; false when the timeout elapses
    # @raise [IOError] the IO is closed, or not open in this direction
    # @raise [TypeError, ArgumentError, RangeError] io, events or timeout has the wrong type or is out of range
    # @raise [IO::TimeoutError] IO#timeout has elapsed; only on Ruby 3.3
    def io_wait(io, events, timeout)
      io = check_io(io)
      raise IOError, "closed stream" if io.closed?

      check_events(events)
      seconds = Durations.seconds(timeout.nil? ? io.timeout : timeout)
      nonblocking?(io) if VM::WINDOWS # otherwise accept(2) would block the thread if another fiber had accepted first
      return ForkedChildHooks.io_wait(io, events, seconds) unless may_park?

      found = seconds&.zero? ? Descriptors.ready_now(io, events) || false : wait_on({ io => events }, seconds)
      # From Ruby 3.4 on, the calling method raises the right exception. On 3.3 it would raise according to errno.
      raise IO::TimeoutError, "Blocking operation timed out!" if !found && timeout.nil? && RUBY_VERSION < "3.4"

      found
    end

    # Parks once for several descriptors.
    #
    # @param ios [Array<IO>]
    # @param masks [Array<Integer>] the events for each IO
    # @param timeout [Numeric, nil] seconds
    # @param lookups [Array<Lookup>] the end of any of them ends the wait
    # @return [Boolean] whether any IO or lookup is ready; false when the timeout elapses
    # @raise [SystemCallError, IOError, TypeError, ArgumentError, RangeError] as {#io_wait}
    # @api private
    def wait_any(ios, masks, timeout, lookups = [])
      seconds = Durations.seconds(timeout)
      masks = ios.first(masks.size).zip(masks).each { |io, mask| check_io(io) && check_events(mask) }.to_h.compare_by_identity
      unless may_park?
        seconds = [seconds, ForkedChildHooks::POLL_INTERVAL].compact.min if lookups.any?
        return !!Fiber.blocking { IO.select(*Descriptors.lists(masks), seconds) } || lookups.any?(&:ended?)
      end

      held = @timers.virtual_now && lookups.any? # virtual time stands still for the resolver
      virtual_hold(true) if held
      !!wait_on(masks, seconds, :select, lookups) || lookups.any?(&:ended?)
    ensure
      virtual_hold(false) if held
    end

    # Starts a lookup by getaddrinfo(3). {#wait_any} waits for its answer.
    #
    # @param host [String, nil]
    # @param service [String, nil]
    # @return [Lookup]
    # @raise [ThreadError] no thread can be started
    # @api private
    def lookup(host, service, family, socktype, protocol, flags) = Lookup.new(host, service, family, socktype, protocol, flags)

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
    define_transfers(self, VM::BUFFER_CONTRACT)

    private

    # @return [Boolean] true if the scheduler can be used; false in a forked child
    def enter
      return false if forked_child?
      raise "this scheduler is closed" if @closed

      adopt unless @thread.equal?(Thread.current)
      true
    end

    # Moves the scheduler to the current thread, if it has not been used yet: it may have been made on another thread and then set
    # on this one.
    def adopt
      unless @recorder.counts[:parks].zero? && Fiber.scheduler.equal?(self)
        raise ThreadError, "this scheduler belongs to another thread"
      end

      @thread = Thread.current
      start_poller # a fiber belongs to the thread that made it
      @starter = VM::Starter.new
    end

    def interrupt_closed(wait, reason)
      return interrupt_watch(wait, reason) if wait.is_a?(Watch)

      wait.error ||= [IOError, "stream closed in another thread"]
      enqueue(wait)
    end

    def overridden? = %i[block kernel_sleep].any? { |hook| method(hook).owner != PortableScheduler }

    # @return [IO] the IO itself, or the result of to_io
    def check_io(io)
      IO.try_convert(io) || raise(TypeError, "wrong argument type #{io.class} (expected IO)")
    end

    def check_events(events)
      raise TypeError, "no implicit conversion of #{events.class} into Integer" unless Integer === events
      raise ArgumentError, "events must be READABLE, PRIORITY, WRITABLE, or any of them together" unless events.between?(1, 7)
    end
  end
end

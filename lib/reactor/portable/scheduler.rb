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
  # The portable scheduler: all hooks in plain Ruby over IO.select. It runs wherever Ruby runs. It is also the specification of
  # the native scheduler, which has the same methods with the same answers and the same errors.
  #
  # ### How it works
  #
  # A fiber that has to wait *parks*: it makes a {Wait}, says what ends it (a descriptor, a time, an unblock), and gives the
  # thread to the first fiber in the ready queue. There is no loop fiber: if no fiber is ready, the parking fiber polls the
  # kernel itself, and if its own wait ends first, it just goes on. Control is handed over with Fiber#transfer, so the
  # program's own Enumerators and fibers are not in the way.
  #
  # Each wait is an object of its own, made for one park and marked when that is over. If an event comes for it afterwards (a
  # readiness, a time, an unblock, an error), the mark is found and the event is dropped: there are no stale wake-ups.
  #
  # An entry stays in the ready queue until its wait is over. So an exception between looking at the queue and handing control
  # over (Thread#raise, a signal) loses nothing. For the same reason a fiber is woken in one step, an append to the ready
  # queue, which other threads and trap handlers may do as well.
  #
  # ### What it cannot do
  #
  # IO.select does not tell of a hang-up where only writability or priority was asked for, and it costs time for every
  # descriptor that is waited for. The end of a child is noticed up to 50 ms late.
  class PortableScheduler
    # Defines io_read and io_write for one version of the scheduler interface. This is the only switch; it is made once below.
    # Tests make it again, to run both versions on any Ruby.
    #
    # @param scheduler [Class]
    # @param contract [Integer] 3: (io, buffer, length, offset), length being the minimum; 4: (io, buffer, offset, length),
    #   length being the maximum
    # @api private
    def self.define_transfers(scheduler, contract) = scheduler.include(contract >= 4 ? AtMost : AtLeast)

    # @param backend [Symbol, String, nil] nothing but :select
    # @raise [ArgumentError] another backend
    # @raise [RuntimeError] initialized before
    # @raise [SystemCallError] no descriptors left
    def initialize(backend = nil)
      raise ArgumentError, "the portable scheduler has no backend #{backend.inspect}" unless [nil, "select"].include?(backend&.to_s)
      raise "already initialized" if @descriptors

      @descriptors = Descriptors.new
      @thread = Thread.current
      @pid = Process.pid
      @closed = false
      @polling = false
      @ready = []                        # entries to be served, in this order
      @waits = {}.compare_by_identity    # fiber => its innermost Wait; keeps parked fibers alive
      @beginning = false                 # whether a fiber is in #begin_block
      @early_unblocks = ObjectSpace::WeakMap.new # fibers unblocked on their way into #block or #kernel_sleep
      @owners = ObjectSpace::WeakMap.new # fiber that #fiber did not make => the fiber on whose behalf it runs
      @killed = ObjectSpace::WeakMap.new # fiber that Ruby unwinds for good => true
      @suspects = {}.compare_by_identity # fiber that may be among them, because an error was raised in one that it resumed => true
      @live = {}.compare_by_identity     # fibers made by #fiber or a watcher => the Proc or Watcher that they run
      @cancelled = {}.compare_by_identity # those that have been asked to end => true
      @cancelling = false
      @timers = Timers.new
      @watches = {}.compare_by_identity  # each {Watch} that waits => true
      @running = nil                     # the fiber that control was last given to
      @resumes_since_poll = 0
      @nonblocking = ObjectSpace::WeakMap.new # IO => whether a transfer never waits, on Windows
      @transfers = 0                     # calls of io_read and io_write for anything but files
      @clock = Clock.now                 # when the last poll ended
      @unblock_only_sleeps = 0           # sleeps in a row that nothing but an unblock could end
      start_poller
      @starter = VM::Starter.new
      @recorder = Recorder.new
    end

    # @return [Symbol] :select
    def backend = :select

    # @return [Boolean] whether it can be used no more; also true in a forked child, because the descriptors are its parent's
    def closed? = forked_child? || @closed

    # @return [Boolean] whether this process is a forked child of the process that made the scheduler. Its hooks then do what
    #   Ruby does without a scheduler.
    def forked_child? = Process.pid != @pid

    # @return [Integer] fibers made by `fiber` that have not finished
    def live = @live.size

    # Releases the descriptors. Any later use raises, but a late unblock does nothing. A second call does nothing.
    #
    # @return [nil]
    # @raise [ThreadError] called by another thread
    # @raise [FiberError] called from a fiber of its own
    # @api private
    def shutdown
      return unless !closed? && enter

      forbid_own_fibers
      cancel_watchers
      @closed = true
      @descriptors.close
      nil
    end

    # Stops the clock of sleeps and timeouts.
    #
    # @param settle [Numeric] real seconds to wait before a jump for an event that is not a timer's
    # @raise [RuntimeError] it was stopped before
    # @api private
    def virtual_time(settle)
      raise "this scheduler is closed, or its time is already virtual" if @timers.virtual_now || closed?

      @timers.stop_clock(Durations.seconds(settle))
    end

    # @return [Integer, nil] nanoseconds of virtual time since it began
    # @api private
    def virtual_elapsed = @timers.virtual_now && (@timers.virtual_now * 1_000_000_000).to_i

    # Any thread and any trap handler may call this.
    #
    # @param begins [Boolean] from true to false the clock does not jump
    # @api private
    def virtual_hold(begins)
      @timers.hold(begins)
      wake_poll unless begins # IO.select sleeps on after a trap handler
    end

    # --- hooks: time and other fibers ------------------------------------------------------------------------------

    # The hook for Kernel#sleep and Mutex#sleep, and with it ConditionVariable#wait.
    #
    # @param duration [Numeric, nil] seconds; none or nil: until {#unblock}; 0: to the back of the ready queue
    # @return [nil]
    # @raise [ArgumentError, TypeError, RangeError] as Kernel#sleep
    def kernel_sleep(duration = nil)
      park(begin_block(:sleep), duration)
      nil
    end

    # The hook for Mutex#lock, Queue#pop, SizedQueue#push, Thread#join, Thread#value: waits for {#unblock} of this fiber.
    #
    # @param blocker what is waited for
    # @param timeout [Numeric, nil] seconds; a negative number counts as 0, as it does for Thread#join and Queue#pop
    # @return [Boolean] whether it was unblocked before the time was over
    # @raise [TypeError] no duration
    def block(blocker, timeout = nil)
      wait = begin_block(:block) # no line may stand before this one
      park(wait, timeout, lenient: true)
      parked = true
      wait.events == :unblocked
    ensure
      VM.hand_on_mutex(blocker) unless parked
    end

    # Ends the fiber's {#block} or {#kernel_sleep}. If the fiber is in neither, the call does nothing: a late unblock shortens
    # no wait. If a subclass overrides one of them, the fiber may be on its way there; then the wait that it is about to begin
    # is over. Any thread and any trap handler may call this. It never waits, switches fibers or raises.
    #
    # @param blocker is not used
    # @param fiber [Fiber]
    # @return [nil]
    def unblock(blocker, fiber) = Thread.handle_interrupt(VM::UNBLOCK_MASK) { end_blocks(fiber) }

    # The hook for IO#close on Ruby 4.0 and later: raises in a fiber that waits for the IO being closed. The exception is only
    # noted here. It is raised in the fiber's turn, and not at all if its wait has ended by then. Any thread may call this.
    #
    # @param fiber [Fiber, #raise] from Ruby 4.1 on a stand-in that responds to alive? and raise
    # @param exception [Exception]
    # @return [Boolean] whether it will be raised
    # @raise [TypeError] it is no exception object, or the other is neither a fiber nor can it raise
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
    # @return [Symbol, nil] :interrupted if there are any
    # @api private
    def prepare_close(io)
      return if closed?

      waits = @descriptors.waits_for(io).each { |wait| interrupt_closed(wait, :closed) }
      wake_poll unless waits.empty?
      :interrupted if waits.any?(Wait)
    end

    # IO#close_read or #close_write is about to be called. If it closes something, {#replaced} is called afterwards.
    #
    # @api private
    def prepare_half_close(_io, _reading) = nil

    # IO#reopen is about to be called. No worker uses the descriptor of an IO here.
    #
    # @api private
    def prepare_reopen(_io) = nil

    # The IO has another file than before, or is closed. All waits for it go on with that file, except that, if `interrupts`,
    # IOError is raised in the fibers that wait for this IO alone. Any thread may call this.
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

    # The reading half of the socket is shut down. Windows does not report that, so the waits for reading end here.
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

    # Waits until the IO is ready. IO#timeout counts where no time is given.
    #
    # @param io [IO]
    # @param events [Integer] IO::READABLE | IO::WRITABLE | IO::PRIORITY
    # @param timeout [Numeric, nil] seconds; nil: IO#timeout, else no limit; 0: does not wait
    # @return [Integer, false] those of the events that have come, never 0; false when the time is over
    # @raise [IOError] the IO is closed, or not open in this direction
    # @raise [TypeError, ArgumentError, RangeError] no IO, no events, no duration
    # @raise [IO::TimeoutError] IO#timeout is over; on Ruby 3.3 only
    def io_wait(io, events, timeout)
      io = check_io(io)
      raise IOError, "closed stream" if io.closed?

      check_events(events)
      seconds = Durations.seconds(timeout.nil? ? io.timeout : timeout)
      nonblocking?(io) if VM::WINDOWS # accept(2) blocks the thread if another fiber has been quicker
      return ForkedChildHooks.io_wait(io, events, seconds) unless may_park?

      found = seconds&.zero? ? Descriptors.ready_now(io, events) || false : wait_on({ io => events }, seconds)
      # From Ruby 3.4 on the method that called this raises the right exception. On 3.3 it raises what errno says.
      raise IO::TimeoutError, "Blocking operation timed out!" if !found && timeout.nil? && RUBY_VERSION < "3.4"

      found
    end

    # Parks on many descriptors as one wait.
    #
    # @param ios [Array<IO>]
    # @param masks [Array<Integer>] the events for each
    # @param timeout [Numeric, nil] seconds
    # @param lookups [Array<Lookup>] the wait ends when one of them has ended, too
    # @return [Boolean] whether any of them is ready; false when the time is over
    # @raise [SystemCallError, IOError, TypeError, ArgumentError, RangeError] as {#io_wait}
    # @api private
    def wait_any(ios, masks, timeout, lookups = [])
      seconds = Durations.seconds(timeout)
      masks = ios.first(masks.size).zip(masks).each { |io, mask| check_io(io) && check_events(mask) }.to_h.compare_by_identity
      unless may_park?
        seconds = [seconds, ForkedChildHooks::POLL_INTERVAL].compact.min if lookups.any?
        return !!Fiber.blocking { IO.select(*Descriptors.lists(masks), seconds) } || lookups.any?(&:ended?)
      end

      held = @timers.virtual_now && lookups.any? # virtual time waits for the resolver
      virtual_hold(true) if held
      !!wait_on(masks, seconds, :select, lookups) || lookups.any?(&:ended?)
    ensure
      virtual_hold(false) if held
    end

    # Starts a lookup, by getaddrinfo(3) with these arguments; {#wait_any} waits for its answer.
    #
    # @param host [String, nil]
    # @param service [String, nil]
    # @return [Lookup]
    # @raise [ThreadError] no thread can be started
    # @api private
    def lookup(host, service, family, socktype, protocol, flags) = Lookup.new(host, service, family, socktype, protocol, flags)

    # @!method io_read(io, buffer, length, offset)
    #   The hook for IO#read and its like: one attempt that does not wait. The arguments are those of Ruby 4.0 and before. From
    #   4.1 on they are (io, buffer, offset, length), and `length` is a maximum instead of a minimum.
    #   @param io [IO]
    #   @param buffer [IO::Buffer]
    #   @param length [Integer] bytes to be read at least, waiting if need be; 0: what one attempt yields
    #   @param offset [Integer] where in the buffer they go
    #   @return [Integer] bytes read, 0 at the end of the file; -errno, in particular -EAGAIN, after which Ruby waits
    #   @raise [TypeError, ArgumentError, IOError] no IO, beyond the buffer, closed
    # @!method io_write(io, buffer, length, offset)
    #   The hook for IO#write and its like; see {#io_read}.
    define_transfers(self, VM::BUFFER_CONTRACT)

    private

    # @return [Boolean] whether the scheduler may be used; false in a forked child
    def enter
      return false if forked_child?
      raise "this scheduler is closed" if @closed

      adopt unless @thread.equal?(Thread.current)
      true
    end

    # A scheduler belongs to the thread that made it until it is used for the first time: that may be on the thread that has
    # been given it meanwhile.
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

    # @return [IO] the IO itself, or what the object converts to by to_io
    def check_io(io)
      IO.try_convert(io) || raise(TypeError, "wrong argument type #{io.class} (expected IO)")
    end

    def check_events(events)
      raise TypeError, "no implicit conversion of #{events.class} into Integer" unless Integer === events
      raise ArgumentError, "events must be READABLE, PRIORITY, WRITABLE, or any of them together" unless events.between?(1, 7)
    end
  end
end

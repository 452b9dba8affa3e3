# frozen_string_literal: true

require "timeout"
require_relative "resolver_threads"
require_relative "timers"
require_relative "transfers"

begin
  require "io/nonblock"
rescue LoadError
  nil # without it every descriptor is taken for one that blocks, and looked at before it is used
end

module Reactor
  # The portable selector: the whole protocol in plain Ruby over IO.select. It runs wherever Ruby runs, and is at the
  # same time the specification the native selector is measured against: same methods, same answers, same errors.
  #
  # == How it works
  #
  # A fiber that has to wait *parks*: it makes a {Wait}, says what shall end it (a descriptor, a time, an unblock), and
  # gives the thread to whoever is first in the ready queue. There is no loop fiber: if nobody is ready, the parking
  # fiber itself asks the kernel, and if its own wait ends first, it just goes on. Control is handed over with
  # Fiber#transfer, so Enumerators and other fibers of the user's are not in the way.
  #
  # Every wait is an object of its own, made for one park and marked when that is over. Whatever still comes for it then
  # (a readiness, a time, an unblock, an error) finds the mark and is dropped: there are no stale wake-ups.
  #
  # An entry stays in the ready queue until its wait is over, so an exception that strikes between looking at the queue
  # and handing over (Thread#raise, a signal) loses nothing. For the same reason to wake a fiber is one step, an append
  # to the ready queue, which other threads and trap handlers may do as well.
  #
  # == What it cannot do
  #
  # IO.select does not tell of a hang-up where only writability or priority was asked for, and costs time for every
  # descriptor that is waited for. The end of a child is noticed up to 50 ms late.
  class PortableScheduler
    # One park of one fiber.
    #
    # [fiber]  who waits; nil when it is over
    # [kind]   :block (ended by unblock), :io (by readiness), :turn (only by its turn), :stray (see PortableScheduler#switch)
    # [outer]  the wait this one interrupts, if a trap handler or a finalizer waits in the middle of another wait
    # [woken]  it may go on
    # [queued] it is in the ready queue
    # [done]   it is over; whatever comes for it is dropped
    # [events] what has become ready
    # [error]  arguments for raise, to be raised where the fiber waits
    # [timer]  the {Timer} that ends it
    # [hook]   which one, for an onlooker: :sleep or :block where the kind is :block
    # [since]  the turn in which it began
    #
    # A Struct, because making one runs no Ruby code: no other thread can come in between, see PortableScheduler#block.
    Wait = Struct.new(:fiber, :kind, :outer, :woken, :queued, :done, :events, :error, :timer, :hook, :since)

    # An exception on its way to a fiber wherever that waits, or the request to end (arguments nil). Takes its turn in
    # the ready queue like a {Wait}. +deferred+: it has let a wake-up go first, once.
    Delivery = Struct.new(:fiber, :arguments, :queued, :done, :deferred)

    # What is written down while somebody traces: what happened, the fibers made and where, and how much did not fit.
    Moments = Struct.new(:start, :limit, :list, :births, :lost)

    private_constant :Wait, :Delivery, :Moments

    # The class of Ruby's "No live threads left. Deadlock?", which has a name but no constant.
    #
    # @api private
    FATAL = ObjectSpace.each_object(Class).find { |klass| klass.name == "fatal" }

    # Resumes between two looks at the kernel, so that a crowd of ready fibers cannot keep descriptors waiting.
    BURST = 64

    # Seconds for which fibers may go on with transfers that need not wait, counted from the last look at the kernel.
    TERM = 0.0005

    # Ruby before 4.0 does not tell that an IO was closed, so while descriptors are waited for we look this often.
    IDLE = 1.0

    private_constant :BURST, :TERM, :IDLE

    include Transfers

    class << self
      # @return [Float] the monotonic clock, in seconds
      # @api private
      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # What Ruby accepts as a time to wait, as a number.
      #
      # @param duration [Numeric, #divmod, nil] seconds
      # @return [Integer, Float, nil] seconds, not negative; nil: for ever
      # @raise [TypeError] no duration
      # @raise [ArgumentError] negative
      # @raise [RangeError] not a number, or beyond what a clock can count
      # @api private
      def seconds(duration)
        return if duration.nil?
        raise TypeError, "can't convert #{duration.class} into time interval" unless duration.respond_to?(:divmod)

        duration = duration.to_f unless duration.is_a?(Integer)
        raise ArgumentError, "time interval must not be negative" if duration.negative?
        raise RangeError, "#{duration} out of Time range" unless duration < 2**63

        duration
      end

      # Mutex#unlock takes the fiber it wakes out of the line. If that fiber is raised upon before it has locked, the mutex
      # is free and the next in line does not know: an unlock tells it.
      #
      # @param blocker what a fiber waited for in vain
      # @api private
      def pass_on(blocker)
        blocker.unlock if blocker.is_a?(Thread::Mutex) && blocker.try_lock
      end

      # Defines io_read and io_write for one version of the scheduler interface: the only switch, made once below.
      # Tests make it again, to run both versions on any Ruby.
      #
      # @param selector [Class]
      # @param contract [Integer] 3: (io, buffer, length, offset), length being the minimum; 4: (io, buffer, offset,
      #   length), length being the maximum
      # @api private
      def define_transfers(selector, contract) = selector.include(contract >= 4 ? AtMost : AtLeast)
    end

    # @param backend [Symbol, String, nil] nothing but :select
    # @raise [ArgumentError] another backend
    # @raise [RuntimeError] initialized before
    # @raise [SystemCallError] no descriptors left
    def initialize(backend = nil)
      raise ArgumentError, "the portable selector has no backend #{backend.inspect}" unless [nil, "select"].include?(backend&.to_s)
      raise "already initialized" if @wakeup

      @bell, @wakeup = IO.pipe # rung by other threads while this one sleeps in the kernel
      @thread = Thread.current
      @pid = Process.pid
      @closed = false
      @sleeping = false
      @ready = []                        # entries to be served, in this order
      @waits = {}.compare_by_identity    # fiber => its innermost Wait; keeps parked fibers alive
      @permits = ObjectSpace::WeakMap.new # fibers unblocked on their way into an overridden hook
      @live = {}.compare_by_identity     # fibers made by #fiber => true
      @timers = Timers.new
      @watched = [IO::READABLE, IO::WRITABLE, IO::PRIORITY].to_h { |event| [event, {}.compare_by_identity] }
      @running = nil                     # the fiber that control was last given to
      @burst = 0                         # resumes since the last look at the kernel
      @transfers = 0                     # calls of io_read and io_write
      @looked = PortableScheduler.now               # when the kernel was last looked at
      @clock = PortableScheduler.now                # when that was
      @stopped = nil                     # what the clock shows while time is virtual
      @quiet = 0                         # sleeps in a row with nothing but an unblock to hope for
      @counts = { fibers: 0, parks: 0, switches: 0, turns: 0, sleeps: 0, wakeups: 0 }
    end

    # @return [Symbol] :select
    def backend = :select

    # What has been done so far and what there is now; {Inspection#stats} says what each number means.
    #
    # @return [Hash{Symbol => Integer}]
    def stats = @counts.merge(live: live, parked: @waits.size, timers: @timers.size)

    # @return [Boolean] whether it can be used no more; also true in a forked child, whose descriptors are its parent's
    def closed? = inert? || @closed

    # @return [Boolean] whether this process is a forked child of the one the selector was made in. Its hooks then do
    #   what Ruby does without a scheduler.
    def inert? = Process.pid != @pid

    # @return [Integer] fibers made by {#fiber} that have not finished
    def live = @live.size

    # --- for an onlooker, from any thread --------------------------------------------------------------------------

    # Every fiber it knows, as {Inspection#fibers} needs it.
    #
    # @return [Array<Array(Fiber, Integer, Symbol, Symbol, IO, Integer, Boolean, Float)>] fiber, key, state, hook, IO,
    #   events, whether for ever, seconds in this state
    # @api private
    def roster
      now = PortableScheduler.now
      (@live.keys | @waits.keys).map do |fiber|
        wait = @waits[fiber]
        state = state_of(wait)
        io, events = wait&.kind == :io ? watched_by(wait) : [nil, 0]
        [fiber, fiber.object_id, state, hook_of(wait), io, events, forever?(wait), wait&.since && now - wait.since]
      end
    end

    # @return [Array<Symbol>] the hooks that fibers wait in, each once
    # @api private
    def waited_for = @waits.each_value.filter_map { |wait| hook_of(wait) unless wait.queued || state_of(wait) == :running }.uniq

    # @return [Integer, nil] changes whenever control changes hands; nil while the thread sleeps in the kernel, and while
    #   there is no fiber that could be held up
    # @api private
    def pulse
      @counts.values_at(:fibers, :parks, :switches, :turns).sum unless @sleeping || @live.empty?
    end

    # @return [Fiber, nil] the fiber that has control
    # @api private
    def holder = (@running if @running && (@live.key?(@running) || @waits.key?(@running)))

    # Begins to write down what happens.
    #
    # @param limit [Integer] how much of it
    # @raise [RuntimeError] it is being written down already
    # @api private
    def trace_start(limit)
      raise "this scheduler is being traced already" if @moments

      @moments = Moments.new(PortableScheduler.now, limit, [], [], 0)
    end

    # @return [Array(Integer, Array, Array)] how many moments were left out; the fibers made, as key and place; the
    #   moments, as what, nanoseconds, key of the fiber, hook, IO, events
    # @api private
    def trace_stop
      moments, @moments = @moments, nil
      [moments.lost, moments.births, moments.list]
    end

    # Stops the clock of sleeps and timeouts: it jumps to the next timer when nobody can run. See {Testing}.
    #
    # @param settle [Numeric] seconds to wait before that for whatever else could wake a fiber
    # @raise [RuntimeError] it was stopped before
    # @api private
    def virtual_time(settle)
      raise "this scheduler is closed, or its time is virtual already" if @stopped || closed?

      @settle = PortableScheduler.seconds(settle)
      @holds = 0
      @stopped = @virtual_start = PortableScheduler.now.round(9)
    end

    # @return [Integer, nil] nanoseconds of virtual time since it began
    # @api private
    def virtual_elapsed = @stopped && ((@stopped - @virtual_start) * 1e9).round

    # @param begins [Boolean] from true to false the clock does not jump
    # @api private
    def virtual_hold(begins) = @holds = begins ? @holds + 1 : [@holds - 1, 0].max

    # Releases the descriptors. Any later use raises; a late unblock does nothing. May be called again.
    #
    # @return [nil]
    # @raise [ThreadError] called by another thread
    def shutdown
      return unless !closed? && enter

      @closed = true
      [@wakeup, @bell].each(&:close)
      nil
    end

    # --- hooks: fibers ---------------------------------------------------------------------------------------------

    # Fiber.schedule: makes a fiber and runs it at once, until it waits for the first time.
    #
    # An exception before that reaches the caller. Later a StandardError or ScriptError is reported on stderr (if the
    # thread reports on exceptions), kept, and raised by {#drain} when all fibers have ended. Anything else (SystemExit,
    # Interrupt, NoMemoryError) goes to the root fiber at once.
    #
    # @param arguments handed to the block
    # @param options handed to Fiber.new (storage:)
    # @return [Fiber] non-blocking; its storage is a copy of the caller's unless told otherwise
    # @raise [RuntimeError] the scheduler is closed, or the parent's in a forked child
    # @raise [ThreadError] it belongs to another thread
    def fiber(*arguments, **options, &block)
      raise "a forked child needs a scheduler of its own" unless enter
      raise ArgumentError, "tried to create Proc object without a block" unless block

      start = Wait.new(Fiber.current, :turn, @waits[Fiber.current])
      fiber = Fiber.new(**options, blocking: false) { |*given| live_through(start, given, block) }
      @counts[:fibers] += 1
      @moments&.births&.push([fiber.object_id, block.source_location&.join(":")])
      @waits[Fiber.current] = start
      start.queued = true
      @ready.unshift(start) # before everyone else: the caller goes on as soon as the new fiber waits
      park(start) { switch(fiber, *arguments) }
      fiber
    end

    # Runs until every fiber made by {#fiber} has ended.
    #
    # @return [nil]
    # @raise the first error that escaped a fiber
    # @raise [FiberError] called from one of these fibers
    # @raise [RuntimeError, ThreadError] closed; another thread's
    def drain
      return unless enter

      forbid_own_fibers
      until @live.empty?
        @drain = Wait.new(Fiber.current, :turn, @waits[Fiber.current])
        @waits[Fiber.current] = @drain
        park(@drain)
      end
      error, @error = @error, nil
      raise error if error
    ensure
      @drain = nil
    end

    # Asks every live fiber to end: where it waits it is left as by throw, which runs ensure clauses and no rescue. They
    # die in {#drain}, which serves their ensure clauses however long these wait.
    #
    # @return [nil]
    # @raise [FiberError] called from one of these fibers
    # @raise [RuntimeError, ThreadError] closed; another thread's
    def cancel
      return unless enter

      forbid_own_fibers
      @live.each_key { |fiber| enqueue(Delivery.new(fiber)) }
      nil
    end

    # Called by Ruby 4.0 and later inside long operations: lets the others go first.
    #
    # @return [nil]
    def yield
      return Thread.pass unless enter

      wait = Wait.new(Fiber.current, :turn, @waits[Fiber.current])
      @waits[Fiber.current] = wait
      park(wait, 0)
    end

    # --- hooks: time and other fibers ------------------------------------------------------------------------------

    # Kernel#sleep, Mutex#sleep and with it ConditionVariable#wait.
    #
    # @param duration [Numeric, nil] seconds; none or nil: until {#unblock}; 0: to the back of the ready queue
    # @return [nil]
    # @raise [ArgumentError, TypeError, RangeError] as Kernel#sleep does
    def kernel_sleep(duration = nil)
      # As in #block: known before anything can interrupt.
      @waits[Fiber.current] = wait = Wait.new(Fiber.current, :block, @waits[Fiber.current])
      wait.hook = :sleep
      enqueue(wait) if @permits.delete(Fiber.current)
      park(wait, duration)
      nil
    end

    # Mutex#lock, Queue#pop, SizedQueue#push, Thread#join, Thread#value: waits for {#unblock} of this fiber.
    #
    # @param blocker what is waited for; of no importance
    # @param timeout [Numeric, nil] seconds; negative counts as 0, as it does for Thread#join and Queue#pop
    # @return [Boolean] whether it was unblocked before the time was over
    # @raise [TypeError] no duration
    def block(blocker, timeout = nil)
      # Nothing before this line, and nothing in it that runs Ruby code: the waiter is in the VM's list already, so
      # an unblock by another thread must find the wait from now on, or the fiber would sleep for ever.
      @waits[Fiber.current] = wait = Wait.new(Fiber.current, :block, @waits[Fiber.current])
      enqueue(wait) if @permits.delete(Fiber.current)
      park(wait, timeout, lenient: true)
      parked = true
      wait.events == :unblocked
    ensure
      PortableScheduler.pass_on(blocker) unless parked
    end

    # Ends the fiber's {#block} or {#kernel_sleep}. Of no effect if it is in neither: a late one shortens nothing. Only
    # where a subclass overrides one of them may the fiber be on its way there; then the wait it is about to begin is over.
    # May be called by any thread and in a trap handler; never waits, switches fibers or raises.
    #
    # @param blocker of no importance
    # @param fiber [Fiber]
    # @return [nil]
    def unblock(blocker, fiber)
      wait = @waits[fiber]
      @permits[fiber] = true if wait.nil? && overridden?
      while wait
        if wait.kind == :block && !wait.queued
          wait.events = :unblocked
          enqueue(wait)
        end
        wait = wait.outer
      end
      ring
      nil
    end

    # IO#close on Ruby 4.0 and later: raises in a fiber that waits for the IO being closed. Only notes it; it happens in
    # the fiber's turn, and not at all if its wait has ended by then. May be called by any thread.
    #
    # @param fiber [Fiber, #raise] from Ruby 4.1 on a stand-in that responds to alive? and raise
    # @param exception [Exception]
    # @return [nil]
    def fiber_interrupt(fiber, exception)
      if fiber.is_a?(Fiber)
        wait = @waits[fiber]
        return unless wait&.kind == :io

        wait.error ||= [exception]
        enqueue(wait)
      else
        enqueue(Delivery.new(fiber, [exception]))
      end
      ring
      nil
    end

    # The IO object is about to be closed: raises IOError in the fibers that wait for it. May be called by any thread.
    #
    # @param io [IO]
    # @return [Symbol, nil] :told if there are any
    # @api private
    def io_closing(io)
      return if closed?

      waits = @watched.each_value.flat_map { |waits_of| waits_of[io]&.keys || [] }
      waits.each do |wait|
        wait.error ||= [IOError, "stream closed in another thread"]
        enqueue(wait)
      end
      ring unless waits.empty?
      :told if waits.any?
    end

    # Timeout.timeout: runs the block, and raises in it where it waits when the time is over, be it inside an
    # Enumerator. Never raises once the block has been left.
    #
    # @param duration [Numeric, nil] seconds; nil: for ever
    # @param exception [Class, Exception] an instance is raised as it is
    # @param message [String, nil]
    # @yieldparam duration [Numeric]
    # @return what the block returns
    # @raise [ArgumentError, TypeError, RangeError] no duration
    def timeout_after(duration, exception, message = nil, &block)
      seconds = PortableScheduler.seconds(duration)
      return blocking_timeout(seconds, exception, message, &block) unless enter
      return yield(duration) unless seconds

      begin
        arguments = exception.is_a?(Class) && message ? [exception, message] : [exception]
        delivery = Delivery.new(Fiber.current, arguments)
        timer = @timers.add(from_now(seconds), delivery)
        yield(duration)
      ensure
        delivery.done = true
        @timers.remove(timer) if timer
      end
    end

    # --- hooks: descriptors ----------------------------------------------------------------------------------------

    # Waits until the IO is ready. IO#timeout counts where no time is given.
    #
    # @param io [IO]
    # @param events [Integer] IO::READABLE | IO::WRITABLE | IO::PRIORITY
    # @param timeout [Numeric, nil] seconds; nil: IO#timeout, else for ever; 0: only look
    # @return [Integer, false] those of the events that have come, never 0; false when the time is over
    # @raise [IOError] the IO is closed, or not open in this direction
    # @raise [TypeError, ArgumentError, RangeError] no IO, no events, no duration
    def io_wait(io, events, timeout)
      check_io(io)
      check_events(events)
      seconds = PortableScheduler.seconds(timeout.nil? ? io.timeout : timeout)
      return blocking_wait(io, events, seconds) unless enter
      return ready_now(io, events) || false if seconds&.zero?

      found = wait_on({ io => events }, seconds)
      raise IO::TimeoutError, "Blocking operation timed out!" if !found && timeout.nil? && unreported_timeout?

      found
    end

    # Parks on many descriptors as one wait.
    #
    # @param ios [Array<IO>]
    # @param masks [Array<Integer>] the events for each
    # @param timeout [Numeric, nil] seconds
    # @param lookups [Array<Lookup>] questions whose answers are waited for, too
    # @return [Boolean] whether any of them is ready; false when the time is over
    # @raise as {#io_wait}
    def wait_any(ios, masks, timeout, lookups = [])
      seconds = PortableScheduler.seconds(timeout)
      masks = ios.each { |io| check_io(io) }.zip(masks.each { |mask| check_events(mask) }).to_h.compare_by_identity
      return !!IO.select(*lists_of(masks), seconds) unless enter

      held = @stopped && lookups.any? # virtual time waits for the resolver
      virtual_hold(true) if held
      !!wait_on(masks, seconds, lookups) || lookups.any?(&:ended?)
    ensure
      virtual_hold(false) if held
    end

    # Asks the resolver, and goes on; {#wait_any} waits for the answer. Only names are asked by other threads, of which
    # there are {Lookup::LIMIT} at most; they are gone when nothing is left to be asked.
    #
    # @param host [String, nil]
    # @param service [String, nil]
    # @param numbers [Array<Integer>] family, socktype, protocol, flags: those of getaddrinfo(3)
    # @return [Lookup]
    # @api private
    def lookup(host, service, *numbers)
      question = Lookup.new([host, service, *numbers])
      if host.nil? || Resolving.address?(host)
        Fiber.blocking { question.ask }
      else
        (@crew ||= ResolverThreads.new(Lookup::LIMIT)).ask(question)
      end
      question
    end

    # @!method io_read(io, buffer, length, offset)
    #   IO#read and its like: one attempt that does not wait. The arguments are those of Ruby 4.0 and before; from 4.1
    #   on they are (io, buffer, offset, length), and +length+ is a maximum instead of a minimum.
    #   @param io [IO]
    #   @param buffer [IO::Buffer]
    #   @param length [Integer] bytes to be read at least, waiting if need be; 0: whatever one attempt yields
    #   @param offset [Integer] where in the buffer they go
    #   @return [Integer] bytes read, 0 at the end of the file; -errno, in particular -EAGAIN, after which Ruby waits
    #   @raise [TypeError, ArgumentError, IOError] no IO, beyond the buffer, closed
    # @!method io_write(io, buffer, length, offset)
    #   IO#write and its like; see {#io_read}.
    define_transfers(self, CONTRACT)

    private

    # --- entering --------------------------------------------------------------------------------------------------

    # Whether the hook may go on. In a forked child it may not: there it does what Ruby does without a scheduler.
    def enter
      return false if inert?
      raise "closed scheduler" if @closed

      adopt unless @thread.equal?(Thread.current)
      true
    end

    # A scheduler belongs to the thread that made it, until it is used for the first time: that may be on the thread it
    # was given to meanwhile.
    def adopt
      unless @counts[:parks].zero? && Fiber.scheduler.equal?(self)
        raise ThreadError, "this scheduler belongs to another thread"
      end

      @thread = Thread.current
    end

    def forbid_own_fibers
      raise FiberError, "a fiber cannot wait for the end of its own scheduler" if @live.key?(Fiber.current)
    end

    def check_io(io)
      raise TypeError, "wrong argument type #{io.class} (expected IO)" unless io.is_a?(IO)
    end

    def check_events(events)
      raise TypeError, "no implicit conversion of #{events.class} into Integer" unless events.is_a?(Integer)
      raise ArgumentError, "events must be READABLE, PRIORITY, WRITABLE, or any of them together" unless events.between?(1, 7)
    end

    # --- parking ---------------------------------------------------------------------------------------------------

    # Gives the thread away until the wait is over. Whatever ends it, nothing is left of it afterwards.
    #
    # @param duration [Numeric, nil] seconds after which it ends by itself; 0: when its turn comes again
    # @param lenient [Boolean] whether a negative duration counts as 0, and an infinite one as none
    # @yield instead of the first look at the ready queue
    def park(wait, duration = nil, lenient: false)
      duration = tolerate(duration) if lenient && duration
      seconds = PortableScheduler.seconds(duration)
      return doze(wait, seconds) unless enter

      @counts[:parks] += 1
      wait.since = @clock
      limit(wait, seconds) if seconds
      note(kind_of_park(wait), wait.fiber, wait)
      yield if block_given?
      step until wait.woken
      note(:unpark, wait.fiber)
      raise(*wait.error) if wait.error && !wait.error.equal?(:cancel)
      throw(wait.fiber) if wait.error
    ensure
      finish(wait)
    end

    # As an onlooker sees it. What waits for a turn and is not queued for it waits for the end of all others, see #drain.
    def kind_of_park(wait)
      return :park unless wait.kind == :turn

      wait.queued ? :ready : :drain
    end

    def tolerate(duration)
      return duration unless duration.is_a?(Numeric)

      duration.negative? ? 0 : (duration unless duration >= 2**63)
    end

    def limit(wait, seconds)
      if seconds.zero?
        alone = @ready.empty?
        enqueue(wait)
        poll if alone # a fiber that does nothing but pass must not keep descriptors waiting
      else
        wait.timer = @timers.add(from_now(seconds), wait)
      end
    end

    def finish(wait)
      wait.done = true
      @timers.remove(wait.timer) if wait.timer
      fiber = wait.fiber
      wait.outer ? @waits[fiber] = wait.outer : @waits.delete(fiber)
      wait.fiber = wait.outer = nil # an entry that is still queued, or a fiber's start, must keep nobody alive
    end

    # Serves the first entry of the ready queue, or looks for more.
    def step
      return poll if @burst >= BURST || @ready.empty?

      entry = @ready.first
      if entry.done
        @ready.shift
      elsif entry.is_a?(Delivery)
        deliver(entry)
      elsif entry.fiber.equal?(Fiber.current)
        entry.woken = true # our own wait, or one that it interrupts
        @ready.shift
      else
        resume(entry)
      end
    end

    def resume(entry)
      @burst += 1
      @counts[:switches] += 1
      entry.woken = true
      return switch(entry.fiber) unless entry.kind == :stray

      entry.done = true
      begin
        switch(entry.fiber)
      rescue FiberError => error
        raise unless refused?(error) # it was not left behind after all, but waits inside an Enumerator or for one
      end
    end

    # Hands control over. It comes back in one of three ways:
    #
    # * another fiber resumed us, because our turn has come;
    # * a fiber ended, and Ruby went on with the fiber at the end of the root fiber's chain of resumes, which happens to
    #   be us: our wait is not over, and we go on looking after the others;
    # * a fiber called Fiber#raise or Fiber#kill on us. It is left behind without having parked, so we queue it.
    def switch(fiber, *arguments)
      current = Fiber.current
      @running = fiber
      fiber.transfer(*arguments)
      @running = current
    ensure
      stray = @running
      @running = current
      note(:control, current)
      if stray && !stray.equal?(current) && stray.alive? && !refused?($!)
        @ready.unshift(Wait.new(stray, :stray, nil, nil, true))
      end
    end

    # Whether a transfer did not take place at all.
    def refused?(error) = error.is_a?(FiberError) && error.message.start_with?("attempt to transfer to a ")

    # Runs a block in a fiber of its own, which need not come back to us: nobody queues it if it is left behind.
    def detour
      switch(Fiber.new { @running = nil; yield })
    end

    # A wait is over, or a delivery is due. The append is the one step that matters; another thread or a trap handler
    # may come in before and after it.
    def enqueue(entry)
      return if entry.queued

      @ready.push(entry)
      entry.queued = true
      note(:ready, entry.fiber) if @moments && entry.is_a?(Wait) && entry.fiber
    end

    def overridden? = %i[block kernel_sleep].any? { |hook| method(hook).owner != PortableScheduler }

    # Ends the kernel's sleep, if there is one.
    def ring
      return if !@sleeping || inert?

      @counts[:wakeups] += 1
      @wakeup.write_nonblock(".", exception: false)
    rescue IOError, SystemCallError
      nil # closed meanwhile: nobody sleeps any more
    end

    # Gives an exception to a fiber.
    def deliver(delivery)
      wait = @waits[delivery.fiber]
      if wait&.queued && wait.kind == :block && !delivery.deferred
        # It has been woken, maybe with a lock that nobody else will be told of: it goes first.
        delivery.deferred = true
        @ready.push(delivery)
        @ready.shift
      elsif wait
        wait.error ||= delivery.arguments || :cancel
        @ready.unshift(wait)
        wait.queued = delivery.done = true
      else
        # It does not wait itself; it resumed a fiber that does, or it is no fiber but a stand-in. Ruby finds the way.
        delivery.done = true
        detour { send_to(delivery.fiber, delivery.arguments) if delivery.fiber.alive? }
      end
    end

    def send_to(fiber, arguments)
      arguments ? fiber.raise(*arguments) : fiber.kill
    end

    # --- the life of a fiber ---------------------------------------------------------------------------------------

    def live_through(start, arguments, block)
      fiber = Fiber.current
      @live[fiber] = true
      note(:control, fiber)
      catch(fiber) { block.call(*arguments) } # thrown by a cancelled wait
      nil # Ruby keeps what a dead fiber returned, which may be another fiber, and so on
    rescue Exception => error # rubocop:disable Lint/RescueException -- it would surface in an unrelated fiber
      if inert?
        raise # a child forked in this fiber has nobody else to tell
      elsif !start.done
        start.error = [error]
      elsif error.is_a?(StandardError) || error.is_a?(ScriptError)
        report(fiber, error)
        @error ||= error
      else
        raise # out of the fiber: Ruby raises it at the end of the root fiber's chain of resumes
      end
    ensure
      @live.delete(fiber)
      note(:end, fiber)
      enqueue(@drain) if @drain && @live.empty?
    end

    def report(fiber, error)
      return unless Thread.current.report_on_exception

      Fiber.blocking { $stderr.write("#{fiber.inspect} terminated with exception (report_on_exception is true):\n#{error.full_message}") }
    rescue IOError, SystemCallError
      nil
    end

    # --- the kernel ------------------------------------------------------------------------------------------------

    # Looks what has become ready: at once if somebody could run meanwhile, otherwise waiting for it.
    #
    # IO.select runs in a blocking fiber of its own. Being blocking, it does not come back to our hooks; being its own,
    # it is what Interrupt, Thread#raise and Thread#kill strike: it dies of them, and Ruby hands them to the fiber at
    # the end of the root fiber's chain of resumes. The fiber that polls goes on waiting, unharmed.
    def poll
      @poller = Fiber.new(blocking: true, storage: nil) { |asker| asker = asker.transfer(look) while asker } unless @poller&.alive?
      switch(@poller, Fiber.current)
    end

    def look
      @burst = 0
      @looked = PortableScheduler.now
      @counts[:turns] += 1
      @sleeping = true # first this, then a look at the queue: who comes in between rings
      @patient = false
      timeout = @ready.empty? ? patience : 0
      sleeps = !timeout&.zero?
      @counts[:sleeps] += 1 if sleeps
      note(sleeps ? :sleep : :turn)
      found = IO.select([@bell, *@watched[IO::READABLE].keys], @watched[IO::WRITABLE].keys, @watched[IO::PRIORITY].keys, timeout)
      @sleeping = false
      note(:turn) if sleeps
      answer(*found) if found
      @stopped = [@stopped, @timers.deadline].max if @patient && !found && @ready.empty?
      expire
      look_for_deadlock unless found
    rescue IOError, Errno::EBADF
      raise unless expel # raised by somebody else, from outside
    ensure
      @sleeping = false
      note(:turned)
    end

    # How long the kernel may keep us.
    def patience
      @patient = !@stopped.nil? && @holds.zero? && @timers.size.positive?
      return outside? ? @settle : 0 if @patient

      @quiet = stuck? ? @quiet + 1 : 0
      return 0.1 * 2**[@quiet - 1, 4].min if @quiet.positive?

      deadline = @timers.deadline unless @stopped
      left = [deadline - PortableScheduler.now, 0].max if deadline
      idle = IDLE unless RUBY_VERSION >= "4.0" || @watched.each_value.all?(&:empty?)
      [left, idle].compact.min
    end

    # Whether nothing but an unblock can help anybody.
    def stuck?
      !@live.empty? && @timers.size.zero? && @watched.each_value.all?(&:empty?) &&
        @waits.each_value.count { |wait| forever?(wait) } >= @live.size
    end

    def forever?(wait) = !wait.nil? && wait.kind == :block && !wait.queued && wait.timer.nil?

    # Ruby itself looks whether all threads wait for one another; of fibers it knows nothing.
    def look_for_deadlock
      return if @quiet.zero? || !@ready.empty? || !respond_to?(:deadlock, true)

      message = deadlock
      raise FATAL, message if message
    end

    def watched_by(wait)
      found = @watched.flat_map { |event, waits_of| waits_of.filter_map { |io, waits| [io, event] if waits.key?(wait) } }
      ios = found.map(&:first).uniq(&:object_id)
      ios.size == 1 ? [ios.first, found.sum(&:last)] : [nil, 0]
    end

    def state_of(wait)
      if wait.nil? || (wait.kind == :turn && !wait.queued) then :running
      else wait.queued ? :ready : :waiting
      end
    end

    def hook_of(wait)
      case wait&.kind
      when :io then :io
      when :block then wait.hook || :block
      else :other
      end
    end

    # Writes down what happens, if somebody wants to know.
    def note(what, fiber = nil, wait = nil)
      return unless @moments

      if @moments.list.size >= @moments.limit
        @moments.lost += 1
      else
        io, events = wait&.kind == :io ? watched_by(wait) : [nil, 0]
        at = ((PortableScheduler.now - @moments.start) * 1e9).round
        @moments.list << [what, at, fiber.object_id, hook_of(wait), io&.inspect, events]
      end
    end

    def answer(readable, writable, priority)
      @bell.read_nonblock(4096, exception: false) if readable.first.equal?(@bell)
      { IO::READABLE => readable, IO::WRITABLE => writable, IO::PRIORITY => priority }.each do |event, ios|
        ios.each do |io|
          @watched[event][io]&.each_key do |wait|
            wait.events |= event
            enqueue(wait)
          end
        end
      end
    end

    # A moment on the clock of sleeps and timeouts. To the nanosecond where it is stopped: sums that are equal on paper
    # are equal there.
    def from_now(seconds) = @stopped ? (@stopped + seconds).round(9) : PortableScheduler.now + seconds

    # Queued first, taken out afterwards: an exception in between costs nothing.
    def expire
      @clock = PortableScheduler.now
      now = @stopped || @clock
      while (timer = @timers.first) && timer.at <= now
        enqueue(timer.entry)
        @timers.remove(timer)
      end
    end

    # Somebody waits for an IO that is closed, or not open in this direction: it is theirs to know, nobody else's.
    # Returns whether there is such a one.
    def expel
      found = false
      @watched.each do |event, waits_of|
        waits_of.each do |io, waits|
          ready_now(io, event)
        rescue IOError, SystemCallError => error
          found = true
          waits.each_key do |wait|
            wait.error ||= [error.class, error.message]
            enqueue(wait)
          end
        end
      end
      found
    end

    # Those of the events that have come, or nil.
    def ready_now(io, events)
      found = Fiber.blocking { IO.select(*lists_of({ io => events }), 0) }
      return unless found

      [IO::READABLE, IO::WRITABLE, IO::PRIORITY].zip(found).sum { |event, ios| ios.empty? ? 0 : event }
    rescue Errno::EBADF
      raise unless io.closed? # by another thread, after IO.select had looked whether it is

      raise IOError, "stream closed in another thread"
    end

    def lists_of(masks)
      [IO::READABLE, IO::WRITABLE, IO::PRIORITY].map { |event| masks.filter_map { |io, mask| io if mask.anybits?(event) } }
    end

    # Parks on each of the IOs. The events of all that came, or false.
    def wait_on(masks, seconds, lookups = [])
      @waits[Fiber.current] = wait = Wait.new(Fiber.current, :io, @waits[Fiber.current])
      wait.events = 0
      lookups.each do |lookup|
        lookup.tell do
          enqueue(wait)
          ring
        end
      end
      each_watch(masks) { |waits_of, io| (waits_of[io] ||= {}.compare_by_identity)[wait] = true }
      park(wait, seconds)
      wait.events.zero? ? false : wait.events
    ensure
      each_watch(masks) do |waits_of, io|
        waits = waits_of[io] or next
        waits.delete(wait)
        waits_of.delete(io) if waits.empty?
      end
    end

    def each_watch(masks)
      masks.each do |io, mask|
        @watched.each { |event, waits_of| yield waits_of, io if mask.anybits?(event) }
      end
    end

    # Until Process.wait may have an answer: a moment, the longer the more has passed, which is returned. (A thread in
    # Process.wait would take the child, and lose it when the wait is interrupted.)
    def await_child(_pid, _flags, waited)
      moment = (waited / 4.0).clamp(0.001, 0.05)
      # Children live in real time, and have as much of it as anybody who keeps the clock from jumping. Then longer than it
      # takes to be idle, or virtual time would never go on.
      moment = 2 * @settle + 0.005 if @stopped && waited > @settle
      @stopped ? sleep_for_real(moment) : kernel_sleep(moment)
      waited + moment
    end

    def sleep_for_real(seconds)
      thread = Thread.new { sleep seconds }
      thread.join
    ensure
      thread&.kill
    end

    # Ruby 3.3 reports a time that ran out in the middle of an IO#read as Errno::EAGAIN; later ones as what it is. The
    # methods that only wait want to be told false. (A method written in C shows the line of its caller as its own.)
    def unreported_timeout?
      return false if RUBY_VERSION >= "3.4"

      caller, its_caller = caller_locations(2, 2)
      its_caller && caller.path == its_caller.path && caller.lineno == its_caller.lineno && !caller.base_label.start_with?("wait")
    end

    # --- in a forked child: what Ruby does without a scheduler ------------------------------------------------------

    def doze(wait, seconds)
      deadline = seconds && PortableScheduler.now + seconds
      Fiber.blocking do
        sleep([deadline ? deadline - PortableScheduler.now : 1, 0.01].min.clamp(0, nil)) until wait.queued || (deadline && PortableScheduler.now >= deadline)
      end
    end

    def blocking_wait(io, events, seconds)
      Fiber.blocking { io.wait(events, seconds) } || false
    end

    def blocking_timeout(seconds, exception, message, &block)
      expired = Class.new(Exception) # rubocop:disable Lint/InheritException -- no rescue of the block's may catch it
      Fiber.blocking { Timeout.timeout(seconds, expired) { block.call(seconds) } }
    rescue expired
      raise(*[exception, message].compact)
    end
  end
end

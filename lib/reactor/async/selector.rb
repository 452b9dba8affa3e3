# frozen_string_literal: true

require_relative "../../reactor"

module Reactor
  # This library behind the selector protocol of IO::Event, by which Async's scheduler waits for descriptors and processes. See
  # reactor/async.
  #
  # Async keeps its timers, its tasks and the choice of the next fiber. The selector serves the descriptors: one registration
  # for each, which outlives its waits; reads and writes that are tried first and never change O_NONBLOCK; sleeping to the
  # nanosecond without the GVL; children by pidfd. On Ruby 3.3 and 3.4, too, closing an IO raises IOError in the tasks that
  # wait for it.
  #
  # A selector belongs to the thread of its loop. {#push} and {#wakeup} may be called by any thread.
  class AsyncSelector
    include TransferLoop

    # The answer to an offset or a length beyond the buffer. An offset at its end is answered with 0, whatever the IO is, as
    # other selectors do.
    EINVAL = -Errno::EINVAL::Errno
    private_constant :EINVAL

    # An entry of the ready queue that can be taken back.
    Turn = Struct.new(:fiber) do
      def alive? = fiber&.alive?
      def transfer = fiber.transfer
    end

    # An exception for a fiber that waits.
    Interrupt = Struct.new(:fiber, :waiting, :number, :error) do
      def alive? = fiber.alive? && waiting.key?(number)
      def transfer = fiber.raise(error)
    end
    private_constant :Turn, :Interrupt

    # @return [Fiber] the fiber that calls {#select}; nil once closed
    attr_reader :loop

    # @return [Float] seconds the last {#select} slept
    attr_reader :idle_duration

    # @param loop [Fiber]
    # @param backend [Symbol, String, nil] a native one, see {Reactor.backends}; nil: the best
    # @raise [ArgumentError] unknown, or not available here
    def initialize(loop, backend: nil)
      @loop = loop
      @poller = Poller.new(backend)
      @ready = Thread::Queue.new
      @waiting = {} # number of the wait => fiber
      @ios = {}.compare_by_identity # IO => { number => fiber }
      @idle_duration = 0.0
      @selecting = false
      return unless RUBY_VERSION < "4.0" # later ones tell the scheduler, which tells the fiber

      Patches.install(Patches::CLOSE)
      Schedulers.register(self)
    end

    # @return [Symbol] see {Reactor.backends}
    def backend = @poller.backend

    # @return [Hash{Symbol => Integer}] the counters of the native reactor, see {Inspection#stats}
    def stats = @poller.stats.merge(waiting: @waiting.size, ready: @ready.size)

    # @return [Boolean] whether it can be used no more; also true in a forked child, because the descriptors are its parent's
    def closed? = @loop.nil? || @poller.closed?

    # @return [nil]
    def close
      @poller.close
      Schedulers.unregister(self)
      @loop = nil
    end

    # --- control ---------------------------------------------------------------------------------------------------

    # Goes to the loop until another fiber comes back to this one; does nothing in the loop itself.
    def transfer = (@loop.transfer unless @loop.equal?(Fiber.current))

    # Goes to the loop, and comes back when the fibers that are ready now have had their turn.
    def yield = queued { transfer }

    # Goes to the fiber, and comes back as {#yield} does.
    def resume(fiber, *arguments) = queued { fiber.transfer(*arguments) }

    # Raises in the fiber, and comes back as {#yield} does.
    def raise(fiber, *arguments, **options) = queued { fiber.raise(*arguments, **options) }

    # Has the next {#select} resume the fiber, or any object that responds to alive? and transfer. Any thread may call it.
    def push(fiber) = @ready.push(fiber)

    # @return [Boolean] whether the ready queue has an entry
    def ready? = !@ready.empty?

    # Ends a {#select} that sleeps. Any thread may call it.
    #
    # @return [Boolean] whether there was one
    def wakeup = @selecting && @poller.wake

    # One turn: resumes the fibers that are ready, polls the descriptors, sleeps if there was neither, and resumes the fibers
    # that got events.
    #
    # @param duration [Numeric, nil] seconds to sleep at most; nil: no limit; a negative number counts as 0
    # @return [Integer] how many events came
    # @raise [TypeError] no duration
    def select(duration = nil)
      duration = 0 if duration.is_a?(Numeric) && duration.negative?
      duration = 0 if resume_ready
      ended = poll(duration)
      ended.each { |number| @waiting[number]&.transfer }
      ended.size
    end

    # --- descriptors and children ----------------------------------------------------------------------------------

    # @param fiber [Fiber] the current one
    # @param io [IO]
    # @param events [Integer] IO::READABLE | IO::WRITABLE | IO::PRIORITY
    # @return [Integer, false] those of the events that have come; false if it was resumed for another reason
    # @raise [IOError] the IO is, or has been, closed
    def io_wait(fiber, io, events)
      number = @poller.wait(io, events) or return events

      begin
        @waiting[number] = (@ios[io] ||= {})[number] = fiber
        @loop.transfer
      ensure
        ready = @poller.finish(number, events)
        @waiting.delete(number)
        waits = @ios[io]
        waits.delete(number)
        @ios.delete(io) if waits.empty?
      end
      ready.zero? ? false : ready
    end

    if VM::BUFFER_CONTRACT == 4
      # One transfer that does not wait.
      #
      # @return [Integer] bytes, or -errno
      def io_read(_fiber, io, buffer, offset, length) = transfer_once(:read, io, buffer, offset, length)

      # As {#io_read}.
      def io_write(_fiber, io, buffer, offset, length) = transfer_once(:write, io, buffer, offset, length)
    else
      # @param length [Integer] bytes at least, waiting if need be; 0: one attempt
      # @return [Integer] bytes, or -errno
      def io_read(_fiber, io, buffer, length, offset = 0) = transfer_least(:read, io, buffer, length, offset)

      # As {#io_read}.
      def io_write(_fiber, io, buffer, length, offset = 0)
        ::Kernel.raise ArgumentError, "length exceeds the size of the buffer" if length > buffer.size

        transfer_least(:write, io, buffer, length, offset)
      end
    end

    # @param descriptor [Integer]
    # @return [Boolean] whether it was closed here; otherwise Ruby closes it, because that may take long
    def io_close(descriptor) = @poller.close_descriptor(descriptor)

    # @param pid [Integer] as waitpid(2)
    # @param flags [Integer] as waitpid(2)
    # @return [Process::Status, false, nil] false if it was resumed before; nil with WNOHANG if no child has changed
    def process_wait(fiber, pid, flags)
      status = ChildEvents.status(pid, flags)
      return status if status || flags.anybits?(Process::WNOHANG)

      descriptor = ChildEvents.exit_descriptor(pid, flags)
      begin
        descriptor ? io_wait(fiber, descriptor, IO::READABLE) : ChildEvents.await(pid, flags)
      ensure
        descriptor&.close
      end
      ChildEvents.status(pid, flags) || false
    end

    # Raises IOError in the tasks that wait for an IO that is about to be closed. Any thread may call it.
    #
    # @api private
    def prepare_close(io)
      return if closed?

      @ios[io]&.each do |number, fiber|
        push(Interrupt.new(fiber, @waiting, number, IOError.new("stream closed in another thread")))
      end
      wakeup
      nil
    end

    # IO#close_read or #close_write is about to be called. If it closes something, {#replaced} is called afterwards.
    #
    # @api private
    def prepare_half_close(_io, _reading) = nil

    # IO#reopen is about to be called.
    #
    # @api private
    def prepare_reopen(_io) = nil

    # The IO has another file than before, or is closed. If `interrupts`, raises IOError in the tasks that wait for it.
    #
    # @api private
    def replaced(io, interrupts) = (prepare_close(io) if interrupts)

    # The reading half of the socket is shut down: the kernel reports it.
    #
    # @api private
    def note_read_shutdown(_io) = nil

    # @return [String] the tasks that wait for descriptors, for {Reactor.dump}
    def dump
      waits = @ios.flat_map { |io, fibers| fibers.values.map { |fiber| [io, fiber] } }
      lines = waits.map { |io, fiber| ["  #{fiber.inspect} waits for #{io.inspect}", *FiberStatus.backtrace(fiber)].join("\n    ") }
      ["#<#{self.class} #{backend}>: #{waits.size} waiting", *lines].join("\n")
    end

    private

    # Runs the block with the current fiber in the ready queue.
    def queued
      turn = Turn.new(Fiber.current)
      @ready.push(turn)
      yield
    ensure
      turn.fiber = nil
    end

    # Resumes the entries of the ready queue, each once. An entry that comes meanwhile waits for the next turn.
    #
    # @return [Boolean] whether there were any
    def resume_ready
      count = @ready.size
      count.times do
        entry = @ready.pop
        entry.transfer if entry.alive?
      end
      count.positive?
    end

    def poll(duration)
      @selecting = true # set before the queue is looked at: a thread that pushes after that wakes
      duration = 0 unless @ready.empty?
      started = Clock.now unless duration.is_a?(Integer) && duration.zero?
      @poller.poll(duration)
    ensure
      @selecting = false
      @idle_duration = started ? Clock.now - started : 0.0
    end

    def transfer_least(direction, io, buffer, least, offset)
      return EINVAL if offset > buffer.size
      return 0 if offset == buffer.size

      transfer_at_least(direction, io, buffer, offset, least)
    end

    def transfer_once(direction, io, buffer, offset, most)
      return EINVAL if offset > buffer.size || most > buffer.size - offset
      return 0 if offset == buffer.size

      attempt_transfer(direction, io, buffer, offset, most)
    end

    # See {TransferLoop}.
    def attempt_transfer(direction, io, buffer, offset, most) = @poller.public_send(direction, io, buffer, offset, most)

    # See {TransferLoop}.
    def await_transfer(direction, io, total, least)
      return false unless total < least

      io_wait(Fiber.current, io, direction == :read ? IO::READABLE : IO::WRITABLE)
      true
    end
  end
end

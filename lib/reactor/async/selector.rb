# frozen_string_literal: true

require_relative "../../reactor"

module Reactor
  # Implements the selector protocol of IO::Event, through which Async's scheduler waits for descriptors and processes. See
  # reactor/async.
  #
  # Async keeps its timers and tasks, and decides which fiber runs next. The selector serves descriptors and children: one
  # registration per descriptor that outlives the waits; reads and writes that are tried first and never change O_NONBLOCK; sleeps
  # without the GVL, accurate to the nanosecond; a pidfd for each child. Closing an IO raises IOError in tasks that wait for it,
  # even on Ruby 3.3 and 3.4.
  #
  # A selector belongs to the thread of its loop. Any thread may call {#push} and {#wakeup}.
  class AsyncSelector
    EAGAIN = -Errno::EWOULDBLOCK::Errno # another number on Windows
    # The result for an offset or a length beyond the end of the buffer. For an offset at the end the result is 0, whatever the
    # IO, as in other selectors.
    EINVAL = -Errno::EINVAL::Errno
    private_constant :EAGAIN, :EINVAL

    # An entry of the ready queue that can be withdrawn.
    Turn = Struct.new(:fiber) do
      def alive? = fiber&.alive?
      def transfer = fiber.transfer
    end

    # An exception for a waiting fiber.
    Interrupt = Struct.new(:fiber, :waiting, :number, :error) do
      def alive? = fiber.alive? && waiting.key?(number)
      def transfer = fiber.raise(error)
    end
    private_constant :Turn, :Interrupt

    # @return [Fiber] the fiber that calls {#select}; nil once the selector is closed
    attr_reader :loop

    # @return [Float] how long the last {#select} slept, in seconds
    attr_reader :idle_duration

    # @param loop [Fiber]
    # @param backend [Symbol, String, nil] see {Reactor.backends}; nil: the best
    # @raise [ArgumentError] the backend is unknown or unavailable
    def initialize(loop, backend: nil)
      @loop = loop
      @poller = Poller.new(backend)
      @ready = Thread::Queue.new
      @waiting = {} # number of a wait => fiber
      @ios = {}.compare_by_identity # IO => { number => fiber }
      @idle_duration = 0.0
      @selecting = false
      return unless RUBY_VERSION < "4.0" # from 4.0 on, Ruby tells the scheduler, and the scheduler tells the fiber

      Patches.install(Patches::CLOSE)
      Schedulers.register(self)
    end

    # @return [Symbol] see {Reactor.backends}
    def backend = @poller.backend

    # @return [Hash{Symbol => Integer}] the counters of the native reactor, see {Inspection#stats}
    def stats = @poller.stats.merge(waiting: @waiting.size, ready: @ready.size)

    # @return [Boolean] whether it is closed; true in a forked child, because the descriptors belong to the parent
    def closed? = @loop.nil? || @poller.closed?

    # @return [nil]
    def close
      @poller.close
      Schedulers.unregister(self)
      @loop = nil
    end

    # --- control ---------------------------------------------------------------------------------------------------

    # Gives control to the loop, until another fiber gives it back. Does nothing in the loop itself.
    def transfer = (@loop.transfer unless @loop.equal?(Fiber.current))

    # Gives control to the loop, and continues when the fibers that are ready now have had their turn.
    def yield = queued { transfer }

    # Gives control to the fiber, and continues like {#yield}.
    def resume(fiber, *arguments) = queued { fiber.transfer(*arguments) }

    # Raises an exception in the fiber, and continues like {#yield}.
    def raise(fiber, *arguments, **options) = queued { fiber.raise(*arguments, **options) }

    # Queues a fiber, or another object with the methods `alive?` and `transfer`: the next {#select} resumes it. Any thread may
    # call this.
    def push(fiber) = @ready.push(fiber)

    # @return [Boolean] whether the ready queue has entries
    def ready? = !@ready.empty?

    # Ends a sleeping {#select}. Any thread may call this.
    #
    # @return [Boolean] whether there was a sleeping {#select}
    def wakeup = @selecting && @poller.wake

    # One turn: resumes the ready fibers, polls the descriptors (sleeping only if no fiber was ready), and resumes the fibers
    # whose events have occurred.
    #
    # @param duration [Numeric, nil] maximum number of seconds to sleep; nil: no limit; negative numbers count as 0
    # @return [Integer] number of events
    # @raise [TypeError] duration is not a duration
    def select(duration = nil)
      duration = 0 if duration.is_a?(Numeric) && duration.negative?
      duration = 0 if resume_ready
      ended = poll(duration)
      ended.each { |number| @waiting[number]&.transfer }
      ended.size
    end

    # --- descriptors and children ----------------------------------------------------------------------------------

    # @param fiber [Fiber] the current fiber
    # @param io [IO]
    # @param events [Integer] IO::READABLE | IO::WRITABLE | IO::PRIORITY
    # @return [Integer, false] those of the events that have occurred; false if the fiber was resumed for another reason
    # @raise [IOError] the IO is closed, or was closed meanwhile
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
      # Makes one transfer that does not wait.
      #
      # @return [Integer] number of bytes, or -errno
      def io_read(_fiber, io, buffer, offset, length) = transfer_once(:read, io, buffer, offset, length)

      # Like {#io_read}.
      def io_write(_fiber, io, buffer, offset, length) = transfer_once(:write, io, buffer, offset, length)
    else
      # @param length [Integer] minimum number of bytes; waits for them if necessary; 0: one attempt
      # @return [Integer] number of bytes, or -errno
      def io_read(_fiber, io, buffer, length, offset = 0) = transfer_least(:read, io, buffer, length, offset)

      # Like {#io_read}.
      def io_write(_fiber, io, buffer, length, offset = 0)
        ::Kernel.raise ArgumentError, "length exceeds the size of the buffer" if length > buffer.size

        transfer_least(:write, io, buffer, length, offset)
      end
    end

    # @param descriptor [Integer]
    # @return [Boolean] whether the descriptor was closed here; if not, Ruby closes it, because closing it may be slow
    def io_close(descriptor) = @poller.close_descriptor(descriptor)

    # @param pid [Integer] as for waitpid(2)
    # @param flags [Integer] as for waitpid(2)
    # @return [Process::Status, false, nil] false if the fiber was resumed early; nil with WNOHANG if no child has changed
    def process_wait(fiber, pid, flags)
      descriptor = ChildEvents.exit_descriptor(pid, flags)
      status = ChildEvents.status(pid, flags)
      unless status || flags.anybits?(Process::WNOHANG)
        descriptor ? io_wait(fiber, descriptor, IO::READABLE) : ChildEvents.await(pid, flags)
        status = ChildEvents.status(pid, flags) || false
      end
      kept = ChildEvents.taken(descriptor) if status && status.pid == -1
      kept ? Internal.process_status(pid, kept) : status
    ensure
      descriptor&.close
    end

    # Raises IOError in the tasks that wait for an IO that is about to be closed. Any thread may call this.
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

    # Called before IO#close_read and #close_write. If that call closes a descriptor, {#replaced} is called afterwards.
    #
    # @api private
    def prepare_half_close(_io, _reading) = nil

    # Called before IO#reopen.
    #
    # @api private
    def prepare_reopen(_io) = nil

    # Called after the IO was reopened or closed. If `interrupts` is true, raises IOError in the tasks that wait for the IO.
    #
    # @api private
    def replaced(io, interrupts) = (prepare_close(io) if interrupts)

    # Called after the reading half of the socket was shut down. There is nothing to do: the kernel reports it to waiting tasks.
    #
    # @api private
    def note_read_shutdown(_io) = nil

    # @return [String] the tasks that wait for descriptors, for {Reactor.dump}
    def dump
      waits = @ios.flat_map { |io, fibers| fibers.values.map { |fiber| [io, fiber] } }
      lines = waits.map { |io, fiber| ["  #{fiber.inspect} waits for #{FiberStatus.shown(io)}", *FiberStatus.backtrace(fiber)].join("\n    ") }
      ["#<#{self.class} #{backend}>: #{waits.size} waiting", *lines].join("\n")
    end

    private

    # Runs the block while the current fiber is in the ready queue.
    def queued
      turn = Turn.new(Fiber.current)
      @ready.push(turn)
      yield
    ensure
      turn.fiber = nil
    end

    # Resumes each entry of the ready queue once. Entries added meanwhile wait for the next turn.
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
      @selecting = true # before reading the queue: from now on, a thread that pushes also ends the sleep
      duration = 0 unless @ready.empty?
      started = Clock.now unless duration.is_a?(Integer) && duration.zero?
      @poller.poll(duration)
    ensure
      @selecting = false
      @idle_duration = started ? Clock.now - started : 0.0
    end

    # @return [Integer] number of bytes, below the minimum only at the end of the stream or after an error; -errno if nothing was
    #   transferred
    # @raise [IO::Buffer::AllocationError] the buffer was freed or shrunk during the wait
    def transfer_least(direction, io, buffer, least, offset)
      size = buffer.size
      return EINVAL if offset > size
      return 0 if offset == size

      total = 0
      while true # because this class has a method `loop`
        ::Kernel.raise IO::Buffer::AllocationError, "The buffer is not allocated!" if buffer.size < size

        count = @poller.public_send(direction, io, buffer, offset + total, size - offset - total)
        if count.positive?
          total += count
          return total if total >= least
        elsif count == EAGAIN && total < least
          io_wait(Fiber.current, io, direction == :read ? IO::READABLE : IO::WRITABLE)
        else
          return total.zero? ? count : total
        end
      end
    end

    def transfer_once(direction, io, buffer, offset, most)
      return EINVAL if offset > buffer.size || most > buffer.size - offset
      return 0 if offset == buffer.size

      @poller.public_send(direction, io, buffer, offset, most)
    end
  end
end

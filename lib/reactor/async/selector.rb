# frozen_string_literal: true

require_relative "../../reactor"
require_relative "../workers/policy"

module Reactor
  # Async on this library: its selector behind the protocol of IO::Event, which Async's scheduler asks for descriptors and
  # processes. See reactor/async.
  #
  # Timers, tasks and the choice of who runs next stay Async's. Ours is what happens at descriptors: one registration for
  # each, which outlives its waits; reads and writes that are tried first and never change O_NONBLOCK; sleeping to the
  # nanosecond without the GVL; children by pidfd. On Ruby 3.3 and 3.4, too, closing an IO raises IOError in the tasks that
  # wait for it.
  #
  # Belongs to the thread of its loop; {#push} and {#wakeup} may be called by any.
  class AsyncSelector
    # Bytes, or -errno: what would block, and what lies beyond the buffer.
    AGAIN = -Errno::EAGAIN::Errno
    INVALID = -Errno::EINVAL::Errno
    private_constant :AGAIN, :INVALID

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
    # @raise [ArgumentError] unknown, or cannot be had here
    def initialize(loop, backend: nil)
      @loop = loop
      @poller = Poller.new(backend)
      @ready = Thread::Queue.new
      @waiting = {} # number of the wait => fiber
      @ios = {}.compare_by_identity # IO => { number => fiber }
      @idle_duration = 0.0
      @selecting = false
      return unless RUBY_VERSION < "4.0" # later ones tell the scheduler, which tells the fiber

      Installation.of(Closing)
      Closing.register(self)
    end

    # @return [Symbol] see {Reactor.backends}
    def backend = @poller.backend

    # @return [Hash{Symbol => Integer}] the counters of the native selector, see {Inspection#stats}
    def stats = @poller.stats.merge(waiting: @waiting.size, ready: @ready.size)

    # For Async's +worker_pool:+ option: operations that may block (Ruby 4.0 offers them) go to threads if they take long.
    #
    # @return [#call, #close]
    def pool = Pool.new

    # @return [Boolean] whether it can be used no more; also true in a forked child, whose descriptors are its parent's
    def closed? = @loop.nil? || @poller.closed?

    # @return [nil]
    def close
      @poller.close
      @loop = nil
    end

    # --- who runs --------------------------------------------------------------------------------------------------

    # Goes to the loop, for somebody to come back; from the loop itself: nothing.
    def transfer = (@loop.transfer unless @loop.equal?(Fiber.current))

    # Goes to the loop, and comes back when those who are ready now have had their turn.
    def yield = in_line { transfer }

    # Goes to the fiber, and comes back likewise.
    def resume(fiber, *arguments) = in_line { fiber.transfer(*arguments) }

    # Raises in the fiber, and comes back likewise.
    def raise(fiber, *arguments, **options) = in_line { fiber.raise(*arguments, **options) }

    # Has the fiber, or whatever responds to alive? and transfer, resumed by the next {#select}. From any thread.
    def push(fiber) = @ready.push(fiber)

    # @return [Boolean] whether anybody is in the ready queue
    def ready? = !@ready.empty?

    # Ends a {#select} that sleeps. From any thread.
    #
    # @return [Boolean] whether there was one
    def wakeup = @selecting && @poller.wake

    # One turn: resumes those who were ready, looks at the descriptors, sleeps if both found nothing, and resumes those
    # whose events came.
    #
    # @param duration [Numeric, nil] seconds to sleep at most; nil: for ever; a negative one counts as 0
    # @return [Integer] how many events came
    # @raise [TypeError] no duration
    def select(duration = nil)
      duration = 0 if duration.is_a?(Numeric) && duration.negative?
      duration = 0 if flush
      over = look(duration)
      over.each { |number| @waiting[number]&.transfer }
      over.size
    end

    # --- descriptors and children ----------------------------------------------------------------------------------

    # @param fiber [Fiber] the current one
    # @param io [IO]
    # @param events [Integer] IO::READABLE | IO::WRITABLE | IO::PRIORITY
    # @return [Integer, false] those that have come; false if it was resumed for another reason
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

    if PortableScheduler::CONTRACT == 4
      # One transfer that does not wait.
      #
      # @return [Integer] bytes, or -errno
      def io_read(_fiber, io, buffer, offset, length) = transfer_once(:read, io, buffer, offset, length)

      # As {#io_read}.
      def io_write(_fiber, io, buffer, offset, length) = transfer_once(:write, io, buffer, offset, length)
    else
      # @param length [Integer] bytes at least, waiting if need be; 0: what one attempt yields
      # @return [Integer] bytes, or -errno
      def io_read(fiber, io, buffer, length, offset = 0) = transfer_least(:read, IO::READABLE, fiber, io, buffer, length, offset)

      # As {#io_read}.
      def io_write(fiber, io, buffer, length, offset = 0)
        ::Kernel.raise ArgumentError, "length exceeds the size of the buffer" if length > buffer.size

        transfer_least(:write, IO::WRITABLE, fiber, io, buffer, length, offset)
      end
    end

    # @param descriptor [Integer]
    # @return [Boolean] whether it was closed here; otherwise Ruby closes it, because that may take long
    def io_close(descriptor) = @poller.close_descriptor(descriptor)

    # @param pid [Integer] as waitpid(2)
    # @param flags [Integer] as waitpid(2)
    # @return [Process::Status, false, nil] false if it was resumed before; nil with WNOHANG if no child has changed
    def process_wait(fiber, pid, flags)
      status = Process::Status.wait(pid, flags | Process::WNOHANG)
      return status if status || flags.anybits?(Process::WNOHANG)

      descriptor = Reactor.pidfd(pid) if pid.positive? && flags.nobits?(Process::WUNTRACED)
      descriptor ? await_exit(fiber, descriptor) : await_change(pid, flags)
      Process::Status.wait(pid, flags | Process::WNOHANG) || false
    end

    # {Closing} tells that an IO is about to be closed.
    #
    # @api private
    def io_closing(io)
      return if closed?

      @ios[io]&.each do |number, fiber|
        push(Interrupt.new(fiber, @waiting, number, IOError.new("stream closed in another thread")))
      end
      wakeup
      nil
    end

    # The tasks that wait for descriptors, for {Reactor.dump}.
    #
    # @return [String]
    def dump
      waits = @ios.flat_map { |io, fibers| fibers.values.map { |fiber| [io, fiber] } }
      lines = waits.map { |io, fiber| ["  #{fiber.inspect} waits for #{io.inspect}", *Inspection.backtrace(fiber)].join("\n    ") }
      ["#<#{self.class} #{backend}>: #{waits.size} waiting", *lines].join("\n")
    end

    private

    def in_line
      turn = Turn.new(Fiber.current)
      @ready.push(turn)
      yield
    ensure
      turn.fiber = nil
    end

    # Those who stand in line now, each once; who comes meanwhile has to wait. Whether there were any.
    def flush
      count = @ready.size
      count.times do
        entry = @ready.pop
        entry.transfer if entry.alive?
      end
      count.positive?
    end

    def look(duration)
      @selecting = true # first this, then a look at the queue: who comes in between wakes
      duration = 0 unless @ready.empty?
      started = PortableScheduler.now unless duration.is_a?(Integer) && duration.zero?
      @poller.poll(duration)
    ensure
      @selecting = false
      @idle_duration = started ? PortableScheduler.now - started : 0.0
    end

    def transfer_least(direction, event, fiber, io, buffer, least, offset)
      return INVALID if offset > buffer.size

      total = 0
      while true # "loop" is another method here
        count = @poller.public_send(direction, io, buffer, offset + total, buffer.size - offset - total)
        if count == AGAIN && total < least
          io_wait(fiber, io, event)
        elsif count.negative?
          return total.zero? ? count : total
        else
          total += count
          return total if count.zero? || total >= least
        end
      end
    end

    def transfer_once(direction, io, buffer, offset, most)
      return INVALID if offset > buffer.size || most > buffer.size - offset

      @poller.public_send(direction, io, buffer, offset, most)
    end

    def await_exit(fiber, descriptor)
      io = IO.for_fd(descriptor, "r")
      io_wait(fiber, io, IO::READABLE)
    ensure
      io&.close
    end

    # The thread takes nothing: whoever is interrupted here has lost no child.
    def await_change(pid, flags)
      thread = Thread.new { Reactor.await_child(pid, flags) }
      thread.report_on_exception = false
      thread.join
    ensure
      thread&.kill
    end

    # What {AsyncSelector#pool} gives.
    class Pool
      def initialize = @offload = OffloadPolicy.new(:measured, OffloadPolicy::WORKERS)

      # @param work [#call]
      def call(work) = @offload.call(work.class, work)

      def close = @offload.close
    end
    private_constant :Pool
  end
end

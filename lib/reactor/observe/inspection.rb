# frozen_string_literal: true

require_relative "fiber_status"
require_relative "holder"
require_relative "health"
require_relative "trace_writer"

module Reactor
  # Methods that show the state of a scheduler, and do not change it. Every thread of the Ractor may call them, except for {#trace},
  # also while the scheduler's own thread sleeps or computes.
  module Inspection
    # Counters since the scheduler was made, and gauges of this moment. Each counter costs an addition.
    #
    # Counters, on every backend:
    #
    # - `fibers`: fibers made by Fiber.schedule
    # - `parks`: waits begun by fibers
    # - `switches`: times control was given to a waiting fiber. A fiber needs none if its own wait ends while it polls.
    # - `turns`: polls of the kernel
    # - `sleeps`: polls that found nothing and went to sleep
    # - `wakeups`: sleeps ended by another thread or a trap handler
    # - `stalls`: fibers that held the loop too long, if `stall:` was given
    # - `awake_ns`: nanoseconds in which the loop was not asleep
    # - `asleep_ns`: nanoseconds in which the loop was asleep
    # - `gc_ns`: nanoseconds of garbage collection in which the loop was not asleep, by any thread; to the millisecond on the
    #   native scheduler. 0 if GC.measure_total_time is off.
    #
    # Gauges, on every backend:
    #
    # - `live`: fibers made by Fiber.schedule that have not finished
    # - `parked`: fibers that wait
    # - `ready`: entries of the ready queue
    # - `waiting_io`: fibers that wait in the hook :io of {FiberStatus}
    # - `waiting_sleep`: in the hook :sleep
    # - `waiting_block`: in the hook :block
    # - `waiting_other`: in the hook :other
    # - `watchers`: waits of {Watching#on_ready} that go on
    # - `timers`: timers that are set
    #
    # Counters of the native scheduler only:
    #
    # - `waits`: waits for a descriptor
    # - `skipped`: waits that needed no system call, because the direction was known to be drained
    # - `registered`: descriptors registered with the kernel
    # - `rearmed`: registrations armed again
    # - `renewed`: registrations that the kernel had forgotten, made again
    # - `deregistered`: registrations ended
    # - `closed`: registrations left to end with their descriptors, because their owners closed them
    # - `polls`: system calls that asked the kernel for events
    # - `events`: events it reported
    # - `stale`: events of an older registration of a descriptor, dropped
    # - `spurious`: events of a direction that no fiber waited for
    # - `queued`: writes submitted in one call with writes of other fibers (backend uring)
    # - `carried`: small reads and fsyncs of files made by the driver instead of a thread (backend uring)
    #
    # Of operations that Ruby offers to the scheduler, and of {Offload#offload}:
    #
    # - `offload_inline`: operations run inline
    # - `offload_on_worker`: operations run on a thread
    # - `offload_threads` (gauge): threads there are
    #
    # Of the native scheduler's pool of threads, for work that has no non-blocking form:
    #
    # - `pool_jobs`: jobs submitted
    # - `pool_ended`: jobs run to their end
    # - `pool_cancelled`: jobs cancelled before they began
    # - `pool_panicked`: jobs that failed inside, which is a defect
    # - `pool_started`: threads started so far
    # - `pool_threads` (gauge): threads there are
    # - `pool_queued` (gauge): jobs that wait for a thread
    # - `pool_running` (gauge): jobs that run
    #
    # @return [Hash{Symbol => Integer}]
    def stats
      stats = super
      gc = GC.total_time - @gc_at_start - stats.delete(:gc_asleep_ns)
      stats.merge(stalls: @stalls&.count || 0, gc_ns: [gc, 0].max)
    end

    # The counters as {#stats}, and how long turns and waits for threads took, and how late timers were. A look changes nothing,
    # so any number of readers may each keep a reading, and subtract it from the next: {Health::Reader} does.
    #
    # @return [Health] since the scheduler was made
    def health = Health.of(self)

    # @return [Array<Stall>] the longest of the stalls that have ended, if `stall:` was given; the longest first
    def slowest_stalls = @stalls&.slowest || []

    # Every fiber the scheduler knows: the unfinished fibers of Fiber.schedule, and each other fiber of the thread (the root
    # fiber, an Enumerator's) that is inside one of its hooks. A fiber that the program itself has suspended inside a timeout
    # may be missing, because it may have been collected.
    #
    # @return [Array<FiberStatus>] the fiber that has waited longest first
    def fibers = FiberStatus.of(self).sort_by { |status| -(status.seconds || -1) }

    # The fibers that hold a lock or a database connection while they wait: others wait for them, and a pool of connections is
    # exhausted by them. A fiber is named for each thing that it holds. A fiber whose wait is over, or that waits for the lock itself, is
    # not, and in ConditionVariable#wait not for the lock that it has given up.
    #
    # A Mutex or Monitor is found by the frame of `synchronize` in the fiber's backtrace. One that was taken by `lock` or `enter` leaves
    # no frame, and is not found. A connection is found if Active Record is loaded and its isolation level is `:fiber`, also while the
    # fiber waits for an answer on that connection. Nothing is recorded beforehand: each call looks at all fibers, and, if Active Record
    # is loaded, at all objects of the process.
    #
    # @param longer_than [Numeric] seconds, 0 or more
    # @return [Array<Holder>] the fiber that has waited longest first
    # @raise [ArgumentError, TypeError, RangeError] no duration
    def holders(longer_than: 0.1)
      seconds = Options.seconds(:longer_than, longer_than) or raise TypeError, "longer_than must be a number of seconds, not nil"

      Holder.of(fibers.select { |status| status.seconds && status.seconds >= seconds })
    end

    # @return [String] its class, backend and number of live fibers
    def inspect = "#<#{self.class} #{closed? ? "closed" : "#{backend}, #{live} live"}>"

    # @return [String] all of {#fibers}, what they hold while they wait (see {#holders}), and the watchers, for a human reader
    def dump
      statuses = fibers
      counts = statuses.map(&:state).tally.map { |state, count| "#{count} #{state}" }
      watchers = self.watchers.map(&:inspect)
      counts << "#{watchers.size} watchers" if watchers.any?
      held = Holder.of(statuses).map(&:to_s)
      ["#{inspect}: #{counts.empty? ? "none" : counts.join(", ")}", *statuses.map(&:to_s), *held, *watchers].join("\n  ")
    end

    # Records every run and wait of every fiber and every turn of the loop while the block runs, in the Trace Event Format, to
    # be opened in Perfetto (ui.perfetto.dev) or in a Chrome at chrome://tracing. There is one track for each fiber, named
    # after the line that made it, and one for the loop. A fiber runs, waits, or is in the ready queue. What runs at the moment
    # when it enters the queue (a fiber, or a turn of the loop) has woken it, unless another thread has. The file is written when
    # the block has ended, also by an exception.
    #
    # Call it on the scheduler's own thread, in a fiber or outside of them. An entry takes about 50 bytes of memory until the
    # file is written. A scheduler that is not traced pays nothing.
    #
    # @param path [String, #to_path]
    # @param limit [Integer] entries that are kept; later ones are only counted
    # @return what the block returns
    # @raise [RuntimeError] it is being traced already
    # @raise [NotImplementedError] it is the portable scheduler
    # @raise [SystemCallError] the file cannot be opened, and the block has not run; or it cannot be written, and the block has run
    def trace(path, limit: 1_000_000, &block)
      raise ArgumentError, "no block given" unless block
      raise NotImplementedError, "the portable scheduler does not support tracing" unless respond_to?(:trace_start)

      TraceWriter.new(self, limit).record(path, &block)
    end
  end

  class << self
    # Lets `reactor-top` of the same user look at this process from now on, at all schedulers of this Ractor. A look takes some
    # tenths of a millisecond of a thread of its own. It opens a UNIX socket in a folder that only the user can enter: reactor-UID in
    # the system's folder for temporary files. The socket is removed when the process exits. A forked child has none, until it calls
    # this itself.
    #
    # @return [Observer]
    # @raise [SocketPlace::Untrusted] another user owns the folder, or can enter it
    # @raise [SystemCallError] the socket cannot be made
    def observe
      require_relative "observer" # here, because it loads json and socket
      Observer.start
    end

    # Writes the {Inspection#dump} of every scheduler of this Ractor. Any thread of the Ractor may call it.
    #
    # @param out [IO, #write]
    # @return [nil]
    def dump(out = $stderr)
      text = +"reactor: process #{Process.pid}, #{Time.now}\n"
      Schedulers.each { |scheduler| text << scheduler.dump << "\n" unless scheduler.closed? }
      Fiber.blocking { out.write(text) }
      nil
    end

    # Makes a signal write {dump} to $stderr, and then call the handler it had before, if it had one.
    #
    # @param signal [String, Symbol, Integer] as for trap, for example "USR2"
    # @return [nil]
    # @raise [ArgumentError, Errno::EINVAL] no signal, or one that Ruby or the system keeps for itself
    def dump_on(signal)
      before = trap(signal) do |number|
        begin
          dump
        rescue StandardError => error # it would be raised in the program: $stderr is broken, or an object's `inspect`
          VM.report_error(self, error, "could not write its dump")
        end
        before.call(number) if before.respond_to?(:call)
      end
      nil
    end
  end
end

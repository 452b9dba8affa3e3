# frozen_string_literal: true

require_relative "fiber_status"
require_relative "lock_holder"
require_relative "health"
require_relative "trace_writer"

module Reactor
  # Methods that show the state of a scheduler without changing it. Any thread of the Ractor may call them, except {#trace}, even
  # while the scheduler's own thread sleeps or computes.
  module Inspection
    # Counters since the scheduler was made, and current gauges. Each counter costs one addition.
    #
    # Counters:
    #
    # - `fibers`: fibers made by Fiber.schedule
    # - `parks`: waits begun by fibers
    # - `switches`: times a waiting fiber was given control. A fiber whose own wait ends while it polls makes no switch.
    # - `turns`: polls of the kernel
    # - `sleeps`: polls that found nothing and went to sleep
    # - `wakeups`: sleeps ended by another thread or a trap handler
    # - `stalls`: fibers that held the loop too long, if `stall:` was given
    # - `awake_ns`: nanoseconds in which the loop was awake
    # - `asleep_ns`: nanoseconds in which the loop was asleep
    # - `gc_ns`: nanoseconds of garbage collection, by any thread. 0 if GC.measure_total_time is off.
    #
    # Gauges:
    #
    # - `live`: fibers made by Fiber.schedule that have not finished
    # - `parked`: waiting fibers
    # - `ready`: entries of the ready queue
    # - `waiting_io`: fibers waiting in the hook :io (see {FiberStatus})
    # - `waiting_sleep`: in the hook :sleep
    # - `waiting_block`: in the hook :block
    # - `waiting_other`: in the hook :other
    # - `watchers`: pending waits of {Watching#on_ready}
    # - `timers`: pending timers
    #
    # Counters of the kernel's events and of what the driver did:
    #
    # - `waits`: waits for a descriptor
    # - `skipped`: waits that needed no system call, because the descriptor was known to be drained
    # - `registered`: descriptors registered with the kernel
    # - `rearmed`: registrations re-armed
    # - `renewed`: registrations made again after the kernel had dropped them
    # - `deregistered`: registrations removed
    # - `closed`: registrations that ended with their descriptors, because those were closed
    # - `polls`: system calls that asked the kernel for events
    # - `events`: events the kernel reported
    # - `stale`: events dropped because they belong to an older registration of a descriptor
    # - `spurious`: events that no fiber waited for
    # - `queued`: writes submitted in one system call with those of other fibers (backend uring)
    # - `carried`: small file reads and fsyncs performed by the driver instead of a thread (backend uring)
    #
    # Of operations that Ruby offers to the scheduler, and of {Offload#offload}:
    #
    # - `offload_inline`: operations run inline
    # - `offload_on_worker`: operations run on a thread
    # - `offload_threads` (gauge): existing threads
    #
    # Of the extension's thread pool, for work that has no non-blocking form:
    #
    # - `pool_jobs`: jobs submitted
    # - `pool_ended`: jobs run to completion
    # - `pool_cancelled`: jobs cancelled before they began
    # - `pool_panicked`: jobs that panicked, which is a bug in reactor
    # - `pool_started`: threads started so far
    # - `pool_threads` (gauge): existing threads
    # - `pool_queued` (gauge): jobs waiting for a thread
    # - `pool_running` (gauge): running jobs
    #
    # @return [Hash{Symbol => Integer}]
    def stats
      super.merge(stalls: @stalls&.count || 0, gc_ns: GC.total_time - @gc_at_start)
    end

    # The counters of {#stats}, plus how long turns and waits for threads took and how late timers were. Reading changes nothing,
    # so each of any number of readers may keep a reading and subtract it from the next, like {Health::Reader}.
    #
    # @return [Health] since the scheduler was made; without histograms once the scheduler is closed
    def health = Health.of(self)

    # @return [Array<Stall>] the longest stalls that have ended, longest first; empty unless `stall:` was given
    def slowest_stalls = @stalls&.slowest || []

    # Every fiber the scheduler knows: unfinished fibers of Fiber.schedule, and other fibers of the thread (the root fiber, an
    # Enumerator's) that are inside a hook. A fiber that the program itself has suspended inside a timeout may be missing, because
    # it may have been garbage-collected.
    #
    # @return [Array<FiberStatus>] longest-waiting first
    def fibers = FiberStatus.of(self).sort_by { |status| -(status.seconds || -1) }

    # The fibers that hold a lock, a permit or a connection while they wait: other fibers may be waiting for it, and holders exhaust
    # connection pools. A fiber is listed once for each that it holds. It is not listed when its wait has ended or when it waits for
    # the lock itself; in ConditionVariable#wait, it is not listed for the lock it has released.
    #
    # Mutexes, Monitors and connections of the gem connection_pool are found by the frames of `synchronize` and `with` in the
    # backtraces of the fibers, so what is taken by `lock`, `enter` or `checkout` is not found; permits of a {Semaphore} in a block of
    # `acquire`, in the main Ractor. Connections are found if Active Record is loaded and its isolation level is `:fiber`, even while the
    # fiber waits for a response on that connection. Nothing is recorded beforehand: each call examines all fibers and, if Active
    # Record is loaded, all objects of the process.
    #
    # @param longer_than [Numeric] seconds, 0 or more
    # @return [Array<LockHolder>] longest-waiting first
    # @raise [ArgumentError, TypeError, RangeError] longer_than is not a duration
    def holders(longer_than: 0.1)
      seconds = Checks.seconds(:longer_than, longer_than) or raise TypeError, "longer_than must be a number of seconds, not nil"

      LockHolder.of(fibers.select { |status| status.seconds && status.seconds >= seconds })
    end

    # @return [String] its class, backend and number of live fibers
    def inspect = "#<#{self.class} #{closed? ? "closed" : "#{backend}, #{live} live"}>"

    # @return [String] for a human reader: what fibers hold while they wait (see {#holders}), {#fibers}, and the watchers. Of fibers that
    #   wait alike with the same backtrace, the one that has waited longest is shown, and the number of the others.
    def dump
      statuses = fibers
      counts = statuses.map(&:state).tally.map { |state, count| "#{count} #{state}" }
      watchers = self.watchers.map(&:inspect)
      counts << "#{watchers.size} watchers" if watchers.any?
      held = LockHolder.of(statuses).map(&:to_s)
      alike = statuses.group_by { |status| [status.state, status.hook, status.events, status.forever, status.backtrace] }
      shown = alike.each_value.map { |first, *others| others.empty? ? first.to_s : "#{first}\n    and #{others.size} more like it" }
      ["#{inspect}: #{counts.empty? ? "none" : counts.join(", ")}", *held, *shown, *watchers].join("\n  ")
    end

    # While the block runs, records every run and wait of every fiber and every turn of the loop. The trace is written in the
    # Trace Event Format, which Perfetto (ui.perfetto.dev) and Chrome (chrome://tracing) can open. Each fiber has a track, named
    # after the line that made it, and so has the loop. A fiber runs, waits, or is in the ready queue. A fiber enters the queue
    # because of whatever runs at that moment (another fiber or a turn of the loop), or because of another thread. The file is
    # written when the block ends, even by an exception.
    #
    # Call it on the scheduler's own thread, inside or outside a fiber. Each entry takes about 50 bytes of memory until the file
    # is written. A scheduler that is not traced pays nothing.
    #
    # @param path [String, #to_path, #to_str]
    # @param limit [Integer] maximum number of entries; later ones are only counted
    # @return what the block returns
    # @raise [TypeError] path is no path
    # @raise [RuntimeError] the scheduler is already being traced
    # @raise [SystemCallError] the file cannot be opened, and the block has not run; or the file cannot be written after the block
    #   has run
    def trace(path, limit: 1_000_000, &block)
      raise ArgumentError, "no block given" unless block

      TraceWriter.new(self, limit).record(path, &block)
    end
  end

  class << self
    # Makes this process observable: from now on `reactor-top`, run by the same user, can take snapshots of all schedulers of this
    # Ractor. A separate thread serves them on a UNIX socket; each takes it a few tenths of a millisecond. The socket is in the
    # folder `reactor-UID` of the system's folder for temporary files, and only this user can enter `reactor-UID`. The socket is
    # removed when the process exits. A forked child has none until it calls this method itself.
    #
    # @return [SnapshotServer]
    # @raise [SocketPlace::Untrusted] another user owns the folder or can enter it
    # @raise [SystemCallError] the socket cannot be made
    def observe
      require_relative "snapshot_server" # loaded only on demand, because it loads json and socket
      SnapshotServer.start
    end

    # Writes the {Inspection#dump} of every scheduler of this Ractor. Any thread of the Ractor may call this.
    #
    # @param out [IO, #write]
    # @return [nil]
    def dump(out = $stderr)
      text = +"reactor: process #{Process.pid}, #{Time.now}\n"
      Schedulers.each { |scheduler| text << scheduler.dump << "\n" unless scheduler.closed? }
      Fiber.blocking { out.write(text) }
      nil
    end

    # Installs a signal handler that writes {dump} to $stderr, then calls the previous handler, if any.
    #
    # @param signal [String, Symbol, Integer] as for trap, for example "USR2"
    # @return [nil]
    # @raise [ArgumentError, Errno::EINVAL] there is no such signal, or it is reserved by Ruby or the system
    def dump_on(signal)
      require "objspace.so" # see FiberStatus.objects
      before = trap(signal) do |number|
        begin
          dump
        rescue StandardError, ScriptError => error # must not be raised in the program: $stderr is broken, or a method of its raises
          VM.report_error(self, error, "could not write its dump")
        end
        before.call(number) if before.respond_to?(:call)
      end
      nil
    end
  end
end

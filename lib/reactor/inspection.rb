# frozen_string_literal: true

module Reactor
  # What one fiber of a scheduler is doing at the moment it was looked at.
  #
  # [fiber]     the Fiber
  # [state]     +:waiting+ (parked), +:ready+ (its wait is over and its turn will come), +:running+ (it has control) or
  #             +:away+ (other fibers run on its behalf: an Enumerator it has resumed, or, in {Lifecycle#run}, all of them)
  # [hook]      what it waits in: +:io+, +:sleep+, +:block+ (Mutex, Queue, Thread#join …), +:other+; nil unless waiting
  # [io]        the IO object it waits for; nil if there is none, are several, or it is gone
  # [events]    IO::READABLE, IO::WRITABLE, IO::PRIORITY or several of them; 0 if it waits for no single IO
  # [forever]   it waits for somebody to wake it, without a time limit
  # [seconds]   for how long, to the turn of the loop in which it began; nil unless waiting or ready
  # [backtrace] where, as Fiber#backtrace, without the frames of this library's Ruby code
  Sighting = Data.define(:fiber, :state, :hook, :io, :events, :forever, :seconds, :backtrace) do
    # @return [String] one line, such as "waiting 0.512 s for #<TCPSocket:fd 7> to be readable"
    def summary
      [state, (format("%.3f s", seconds) if seconds), purpose].compact.join(" ")
    end

    # @return [String] the fiber, the summary, and the backtrace on lines of its own
    def to_s = ["#{fiber.inspect} #{summary}", *backtrace].join("\n    ")

    private

    def purpose
      case hook
      when :io then io || !events.zero? ? "for #{io ? io.inspect : "an IO object"} to be #{Inspection.wanted(events)}" : "for several IO objects"
      when :sleep then forever ? "asleep until woken" : "asleep"
      when :block then forever ? "for somebody to wake it" : "for somebody to wake it, or its time"
      end
    end
  end

  # What an onlooker may ask a scheduler. Nothing here changes anything, and but for {#trace} all of it may be called by
  # any thread of the Ractor, also while the scheduler's own thread sleeps or computes.
  module Inspection
    # Frames of no interest. (Those of testing.rb stand for methods of Ruby's.)
    OWN = %w[body select select/transfers lifecycle inspection stalls trace].map { |name| "#{__dir__}/#{name}.rb:" }.freeze
    private_constant :OWN

    # Counters since the scheduler was made, and gauges of this moment. Reading them costs nothing to speak of; keeping
    # them costs an addition each.
    #
    # Counters, on every backend:
    # [fibers]   fibers made by Fiber.schedule
    # [parks]    times a fiber began to wait
    # [switches] times control was given to a waiting fiber (one whose own wait ends while it looks needs none)
    # [turns]    looks at the kernel
    # [sleeps]   those among them that found nothing and went to sleep
    # [wakeups]  sleeps ended by another thread or a trap handler
    # [queued]   writes handed to the kernel together with those of other fibers (backend uring)
    # [carried]  small reads and fsyncs of files done by the kernel's ring instead of a thread (backend uring)
    # [stalls]   fibers that held the loop too long, if +stall:+ was given
    #
    # Gauges, on every backend:
    # [live]     fibers made by Fiber.schedule that have not finished
    # [parked]   fibers that wait
    # [timers]   timers that are set
    #
    # Counters of the native selector only:
    # [waits]        waits for a descriptor
    # [skipped]      those that needed no system call: the direction was known to be drained
    # [registered]   descriptors registered with the kernel
    # [rearmed]      registrations armed again
    # [renewed]      registrations the kernel had forgotten, made afresh
    # [deregistered] registrations ended
    # [closed]       registrations left to end with their descriptors, which their owners closed
    # [polls]        system calls that asked the kernel for events
    # [events]       events it reported
    # [stale]        events of an older life of a descriptor, dropped
    # [spurious]     events of a direction that no wait asked for
    # [queued]       writes handed to the kernel together with those of other fibers (backend uring)
    #
    # Of operations that Ruby offers to hand over to other threads, and those of {Lifecycle#offload}:
    # [offload_kept]    done on the spot
    # [offload_handed]  done by a worker
    # [offload_threads] workers there are
    #
    # Of its pool of threads for work that has no non-blocking form:
    # [pool_jobs]      jobs handed in
    # [pool_ended]     jobs run to their end
    # [pool_cancelled] jobs taken back before they began
    # [pool_panicked]  jobs that failed inside, which is a defect
    # [pool_started]   threads started so far
    # [pool_threads]   threads there are
    # [pool_queued]    jobs that wait for a thread
    # [pool_running]   jobs going on
    #
    # @return [Hash{Symbol => Integer}]
    def stats = super.merge(stalls: @stalls&.count || 0)

    # Every fiber the scheduler knows: those of Fiber.schedule that have not finished, and whichever other fiber of the
    # thread (the root fiber, an Enumerator's) is inside one of its hooks.
    #
    # @return [Array<Sighting>] those that have waited longest first
    def fibers
      rows = roster
      numbers = Inspection.numbered if rows.any? { |row| row[4].is_a?(Integer) && row[4].positive? }
      sightings = rows.map do |fiber, _, state, hook, io, events, forever, seconds|
        io = numbers&.[](io) if io.is_a?(Integer)
        hook = nil unless state == :waiting
        state = :away if state == :running && !fiber.equal?(holder)
        Sighting.new(fiber, state, hook, io, events, forever, seconds, Inspection.backtrace(fiber))
      end
      sightings.sort_by { |sighting| -(sighting.seconds || -1) }
    end

    # @return [String] what it is, in short
    def inspect = "#<#{self.class} #{closed? ? "closed" : "#{backend}, #{live} live"}>"

    # All of {#fibers}, for a human reader.
    #
    # @return [String]
    def dump
      seen = fibers
      counts = seen.map(&:state).tally.map { |state, count| "#{count} #{state}" }
      ["#{inspect}: #{counts.empty? ? "none" : counts.join(", ")}", *seen.map(&:to_s)].join("\n  ")
    end

    # Writes down every run and wait of every fiber and every turn of the loop while the block runs, in the Trace Event
    # Format: to be opened in Perfetto (ui.perfetto.dev) or in a Chrome at chrome://tracing. One track per fiber, named
    # after the line that made it, one for the loop. A fiber runs, waits, or is ready and waits for its turn; an arrow
    # leads from what woke it to where it goes on. The file is written when the block has ended, however it does.
    #
    # On the scheduler's own thread; the block may be left out of any fiber, which are traced all alike. A moment takes
    # about 50 bytes until the file is written; costs nothing while nobody traces.
    #
    # @param path [String, #to_path]
    # @param limit [Integer] how many moments are kept; what comes later is only counted
    # @return what the block returns
    # @raise [RuntimeError] it is being traced already
    # @raise [SystemCallError] the file cannot be written; found out before the block runs
    def trace(path, limit: 1_000_000, &block)
      raise ArgumentError, "no block given" unless block

      Trace.new(self, limit).record(path, &block)
    end

    class << self
      # IO objects by the number the native selector knows them under.
      #
      # @api private
      def numbered
        ObjectSpace.each_object(IO).filter_map { |io| (number = Reactor.io_number(io)) && [number, io] }.to_h
      end

      # Where a fiber or a thread is, seen from outside of this library.
      #
      # @api private
      def backtrace(whose) = (whose.backtrace || []).reject { |line| line.start_with?(*OWN) }

      # Events in words.
      #
      # @api private
      def wanted(events)
        names = { IO::READABLE => "readable", IO::WRITABLE => "writable", IO::PRIORITY => "exceptional" }
        names.filter_map { |event, name| name if events.anybits?(event) }.join(" or ")
      end

      # Whether a thread will wake nobody unless somebody wakes it: it waits for ever, or only watches.
      #
      # @api private
      def idle?(thread)
        thread.thread_variable?(:reactor_bystander) || (thread.inspect.end_with?(" sleep_forever>") && !thread.pending_interrupt?)
      end
    end

    private

    # Asked when all fibers have waited for an unblock, and for nothing else, for a while: the message of Ruby's own
    # "No live threads left. Deadlock?" if it would say so, else nil. It would if no other thread could ever wake one of
    # ours, because each waits for another thread too, and would not where somebody just sleeps.
    def deadlock
      return unless Thread.list.all? { |thread| thread.equal?(Thread.current) || Inspection.idle?(thread) }

      seen = fibers
      waiting = seen.select { |sighting| sighting.state == :waiting }
      return if waiting.empty? || seen.any? { |sighting| sighting.state == :ready } || !waiting.all? { |sighting| lost?(sighting) }

      "No live threads left. Deadlock?\n#{dump}"
    end

    # Kernel#sleep waits for no other thread; ConditionVariable#wait, which comes by the same hook, does.
    def lost?(sighting)
      sighting.forever && (sighting.hook == :block || sighting.backtrace.first(4).any? { |line| line.match?(/\b(wait|Mutex#sleep)'\z/) })
    end
  end

  class << self
    # Writes the {Inspection#dump} of every scheduler of this Ractor.
    #
    # @param out [IO, #write]
    # @return [nil]
    def dump(out = $stderr)
      text = +"reactor: process #{Process.pid}, #{Time.now}\n"
      Closing.each_scheduler { |scheduler| text << scheduler.dump << "\n" unless scheduler.closed? }
      Fiber.blocking { out.write(text) }
      nil
    end

    # Makes a signal write {dump} to $stderr, and then do what it was set to do before if that was a handler.
    #
    # @param signal [String, Symbol, Integer] as for trap, such as "USR2"
    # @return [nil]
    # @raise [ArgumentError, Errno::EINVAL] no signal, or one that Ruby or the system keeps for itself
    def dump_on(signal)
      before = trap(signal) do |number|
        dump
        before.call(number) if before.respond_to?(:call)
      end
      nil
    end
  end
end

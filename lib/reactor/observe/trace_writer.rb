# frozen_string_literal: true

module Reactor
  # Writes the entries recorded by a scheduler to a file in the Trace Event Format. Each fiber has a track, and each run, wait and
  # time in the ready queue is a slice ("X") on it. The wait of a watcher ({Watching#on_ready}) is an asynchronous slice ("b",
  # "e") that tells what ended the wait.
  # See {Inspection#trace}.
  #
  # @api private
  class TraceWriter
    LOOP = 0 # the track of the loop's turns and sleeps

    private_constant :LOOP

    def initialize(scheduler, limit)
      @scheduler = scheduler
      @limit = limit
      @tracks = {}   # key of a live fiber => its track
      @labels = { LOOP => "loop" }
      @open = {}     # track => [name, nanoseconds, arguments] of the unfinished slice
      @parked = {}   # tracks of waiting fibers
      @watches = {}  # key of a watcher => [nanoseconds, name, arguments] of its wait
      @events = []
      @now = @numbers = 0
    end

    def record(path)
      require "json"
      file = File.open(File.path(path), "w") # an Integer would be a descriptor, which this would close
      @scheduler.trace_start(@limit)
      begin
        @origins = origins
        yield
      ensure
        @origins = origins.merge(@origins)
        write(file, *@scheduler.trace_stop)
      end
    ensure
      file&.close
    end

    private

    # The outermost backtrace line of each live fiber.
    def origins
      FiberStatus.rows(@scheduler).to_h { |row| [row.key, FiberStatus.backtrace(row.fiber).last] }
    end

    def write(file, lost, births, entries)
      @births = births.group_by(&:first)
      @ios = ObjectSpace.each_object(IO).to_h { |io| [Internal.io_number(io), io] }
      entries.each { |entry| add(*entry) }
      @open.each_key { |track| close(track) }
      @watches.keys.each { |key| end_watch(key, "still waits") }
      other = { reactor: VERSION, backend: @scheduler.backend, moments_left_out: lost }
      Fiber.blocking { file.write(JSON.generate({ traceEvents: names + @events, displayTimeUnit: "ms", otherData: other })) }
    end

    # When another thread wakes a fiber, the entry of the wake-up may come a little late: its time is then earlier than that of
    # the entry before it.
    def add(what, at, key, hook, io, events)
      @now = at if at > @now
      case what
      when :turn, :sleep then slice(LOOP, what.name)
      when :turned, :wake then close(LOOP)
      when :watch then @watches[key] = [@now, *waiting(hook, io, events)]
      when :due then end_watch(key, events.positive? ? FiberStatus.wanted(events) : "timeout")
      when :unwatch then end_watch(key, "cancelled, closed or reopened")
      else add_to_fiber(what, track_of(key, fresh: what == :control), hook, io, events)
      end
      @tracks.delete(key) if what == :end
    end

    def add_to_fiber(what, track, hook, io, events)
      yield_to(track) unless what == :park || what == :ready
      case what
      when :park then park(track, *waiting(hook, io, events))
      when :drain then park(track, "wait: fibers")
      when :ready then slice(track, "ready")
      when :end then close(track)
      else run(track, what)
      end
    end

    def park(track, name, arguments = nil)
      slice(track, name, arguments)
      @parked[track] = true
    end

    # A fiber may get control while it still waits, only to find a fiber that can run.
    def run(track, what)
      return if what == :control && @parked[track]

      @parked[track] = false
      slice(track, "run")
    end

    # A fiber that had control and has neither parked nor ended is now in the ready queue.
    def yield_to(track)
      slice(@runner, "ready") if @runner && @runner != track && @open.dig(@runner, 0) == "run"
      @runner = track
    end

    def slice(track, name, arguments = nil)
      close(track)
      @open[track] = [name, @now, arguments]
    end

    # Slices are a nanosecond short. Otherwise a rounding error in a viewer could put the end of a slice after the start of the
    # next one, and the viewer would nest the next slice in it.
    def close(track)
      name, since, arguments = @open[track]
      @open[track] = nil
      return if name.nil? || since == @now

      @events << { name: name, cat: track == LOOP ? "loop" : "fiber", ph: "X", pid: Process.pid, tid: track,
                   ts: since / 1e3, dur: (@now - since - 1) / 1e3, args: arguments || {} }
    end

    # Ends the slice of a watcher. A wait that began before the trace has no slice.
    def end_watch(key, ended)
      since, name, arguments = @watches.delete(key)
      return unless since

      slice = { name: name, cat: "watcher", id: @numbers += 1, pid: Process.pid, tid: LOOP }
      @events << slice.merge(ph: "b", ts: since / 1e3, args: (arguments || {}).merge(ended: ended))
      @events << slice.merge(ph: "e", ts: @now / 1e3, args: {})
    end

    # @return [Array] name of the slice, and its arguments
    def waiting(hook, io, events)
      return ["wait: #{hook}"] unless hook == :io
      return ["wait: several"] unless events.positive?

      io = @ios[io] || "IO object #{io}" if io.is_a?(Integer) && io.positive?
      ["wait: #{FiberStatus.wanted(events)}", { io: FiberStatus.text(io.is_a?(IO) ? FiberStatus.shown(io) : io.to_s) }]
    end

    # The key of an ended fiber may be reused. The new fiber starts with a control entry.
    def track_of(key, fresh:)
      @tracks[key] ||= @labels.size.tap do |track|
        born = @births[key]&.shift if fresh
        place = born ? born[1] : @origins[key]
        @labels[track] = place ? "fiber #{track} #{FiberStatus.text(place)}" : "fiber #{track}, not scheduled"
      end
    end

    def names
      program = FiberStatus.text(File.basename($PROGRAM_NAME))
      process = { name: "process_name", ph: "M", pid: Process.pid, args: { name: "#{program}, reactor on #{@scheduler.backend}" } }
      threads = @labels.map { |track, label| { name: "thread_name", ph: "M", pid: Process.pid, tid: track, args: { name: label } } }
      [process, *threads]
    end
  end
end

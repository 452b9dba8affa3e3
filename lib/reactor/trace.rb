# frozen_string_literal: true

module Reactor
  # Turns the moments a selector has written down into a file in the Trace Event Format: "X" events, one slice for each
  # run, wait and time in the ready queue of a fiber, on a track of its own. See {Inspection#trace}.
  #
  # @api private
  class Trace
    LOOP = 0 # the track of the loop's turns and sleeps
    private_constant :LOOP

    def initialize(scheduler, limit)
      @scheduler = scheduler
      @limit = limit
      @tracks = {}   # the key of a fiber that lives => its track
      @labels = { LOOP => "loop" }
      @open = {}     # track => [name, nanoseconds, arguments] of the slice that goes on
      @parked = {}   # tracks of fibers that wait
      @events = []
    end

    def record(path)
      require "json"
      file = File.open(path, "w")
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

    # Where the fibers that are alive came from: the outermost line of each.
    def origins
      @scheduler.roster.to_h { |fiber, key| [key, fiber.backtrace&.last] }
    end

    def write(file, lost, births, moments)
      @births = births.group_by(&:first)
      @ios = Inspection.numbered
      moments.each { |moment| tell(*moment) }
      @open.each_key { |track| close(track, moments.last[1]) }
      other = { reactor: VERSION, backend: @scheduler.backend, moments_left_out: lost }
      Fiber.blocking { file.write(JSON.generate({ traceEvents: names + @events, displayTimeUnit: "ns", otherData: other })) }
    end

    def tell(what, at, key, hook, io, events)
      case what
      when :turn, :sleep then slice(LOOP, at, what)
      when :turned, :wake then close(LOOP, at)
      else tell_fiber(what, at, track_of(key, fresh: what == :control), hook, io, events)
      end
      @tracks.delete(key) if what == :end
    end

    def tell_fiber(what, at, track, hook, io, events)
      yield_to(track, at) unless what == :park
      case what
      when :park then slice(track, at, "wait: #{hook}", arguments(io, events))
      when :end then close(track, at)
      else slice(track, at, "run") unless what == :control && @parked[track]
      end
      @parked[track] = what == :park || (what == :control && @parked[track])
    end

    # Whoever had control and neither waits nor has ended stands in the ready queue now.
    def yield_to(track, at)
      slice(@runner, at, "ready") if @runner && @runner != track && @open.dig(@runner, 0) == "run"
      @runner = track
    end

    def slice(track, at, name, arguments = nil)
      close(track, at)
      @open[track] = [name, at, arguments]
    end

    def close(track, at)
      name, since, arguments = @open[track]
      return unless name

      @open[track] = nil
      @events << { name: name, ph: "X", pid: Process.pid, tid: track, ts: since / 1e3, dur: (at - since) / 1e3, args: arguments || {} }
    end

    def arguments(io, events)
      io = @ios[io] || "IO object #{io}" if io.is_a?(Integer) && io.positive?
      { io: io.is_a?(IO) ? io.inspect : io, events: events } if events.positive?
    end

    # A key may come back when its fiber has ended: then it is another fiber, and begins with control.
    def track_of(key, fresh:)
      @tracks[key] ||= @labels.size.tap do |track|
        born = @births[key]&.shift if fresh
        @labels[track] = "fiber #{track} #{born ? born[1] : @origins[key]}".strip
      end
    end

    def names
      @labels.flat_map do |track, label|
        { thread_name: { name: label }, thread_sort_index: { sort_index: track } }.map do |name, arguments|
          { name: name, ph: "M", pid: Process.pid, tid: track, args: arguments }
        end
      end
    end
  end
end

# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # The methods that {Reactor::Watching} calls.

    # The `start` of a fiber that no caller waits for.
    NO_SPAWNER = Struct.new(:done).new(true).freeze
    private_constant :NO_SPAWNER

    # @return [Watch] identifies the watcher
    # @api private
    def begin_watcher(watcher, given, events, timeout, transient, buffered)
      io = check_io(given)
      check_events(events)
      seconds = Durations.seconds(timeout)
      raise "this scheduler belongs to the parent process" unless enter

      check_directions(io, events)
      found = buffered ? IO::READABLE : Descriptors.ready_now(io, events) || 0
      watch = Watch.new(watcher, given, { io => events }, transient, nil, nil, found)
      @watches[watch] = true
      @descriptors.add(watch)
      return watch.tap { enqueue(watch) } if watch.events.positive?

      watch.timer = @timers.add(seconds, watch) if seconds
      watch
    end

    # @return [Boolean] whether the watcher was waiting
    # @raise [ThreadError] called on another thread
    # @api private
    def cancel_watcher(watch)
      return false unless enter && @watches.key?(watch)

      waited = !watch.error
      end_watch(watch)
      waited
    end

    # @return [#to_io, nil] the watched object; nil if the wait has ended
    # @api private
    def watched(watch) = watch.given

    # @return [Boolean] whether the IO is readable, now or within this time
    # @api private
    def linger(io, seconds) = !check_io(io).wait_readable(seconds).nil?

    # @return [Array<Watcher>] every waiting watcher
    def watchers = forked_child? ? [] : @watches.keys.reject(&:error).map(&:watcher)

    private

    # Raises if the IO is closed, or not open in one of the directions. For an IO made by IO.popen, wait_writable cannot
    # check this, because a separate IO does its writing.
    def check_directions(io, events)
      reads, writes = events.anybits?(IO::READABLE | IO::PRIORITY), events.anybits?(IO::WRITABLE)
      if reads && writes && io.pid
        raise ArgumentError, "this IO has separate descriptors for reading and writing: watch one direction at a time"
      end

      Fiber.blocking do
        io.wait_readable(0) if reads
        io.wait_writable(0) if writes && io.pid.nil?
      end
    end

    # (Uses Array#all?, because breaking out of an iterator's block would clear the error that ends the thread, and Ruby reads
    # that error after closing the scheduler.)
    def drained? = @live.empty? && @watches.keys.all?(&:transient)

    # Starts the fiber of a watcher whose turn has come.
    def start_watch(watch)
      return end_watch(@ready.shift) if watch.error

      watcher, given = watch.watcher, watch.given
      @resumes_since_poll += 1
      # Shift before making the fiber: if a finalizer runs there and waits, it also takes the first entry of the ready queue.
      @ready.shift
      release_watch(watch)
      fiber = Fiber.new(blocking: false, storage: watcher.instance_variable_get(:@storage)) { |*arguments| run_fiber(NO_SPAWNER, arguments, watcher) }
      @recorder.birth
      switch_to_new(fiber, watch.events.zero? ? nil : watch.events, given)
    rescue FiberError => error
      raise unless fiber && unborn?(fiber)

      # There is no memory for the fiber. The error is treated as if it had ended the fiber.
      begin
        Fiber.blocking { keep_error(error, watcher) }
      ensure
        watcher.__send__(:finish, :failed, given)
      end
    end

    def release_watch(watch)
      watch.done = true
      @timers.remove(watch.timer) if watch.timer
      @descriptors.remove(watch)
      @watches.delete(watch)
      watch.watcher = watch.given = watch.masks = nil
    end

    # Ends the wait of a watcher without making a fiber.
    def end_watch(watch)
      return if watch.done

      release_watch(watch)
      continue_draining
    end

    def cancel_watchers
      @watches.keys.each do |watch|
        watch.watcher.__send__(:finish, :cancelled) unless watch.error
        end_watch(watch)
      end
    end

    # Called when the IO was closed or reopened. Any thread may call this, so the rest is left to the watcher's turn.
    def interrupt_watch(watch, reason)
      return if watch.done || watch.error

      watch.watcher.__send__(:finish, reason)
      watch.error = reason
      enqueue(watch)
    end
  end
end

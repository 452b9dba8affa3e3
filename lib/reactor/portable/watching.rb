# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # Methods that {Reactor::Watching} calls.

    # A start of a fiber that no fiber waits for.
    NO_SPAWNER = Struct.new(:done).new(true).freeze
    private_constant :NO_SPAWNER

    # @return [Watch] its number
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

    # @return [Boolean] whether it waited
    # @raise [ThreadError] called by another thread
    # @api private
    def cancel_watcher(watch)
      return false unless enter && @watches.key?(watch)

      waited = !watch.error
      end_watch(watch)
      waited
    end

    # @return [#to_io, nil] what it watches; nil if it has ended
    # @api private
    def watched(watch) = watch.given

    # @return [Boolean] whether the IO is readable, now or after a wait of this time
    # @api private
    def linger(io, seconds) = !check_io(io).wait_readable(seconds).nil?

    # @return [Array<Watcher>] every watcher that waits
    def watchers = forked_child? ? [] : @watches.keys.reject(&:error).map(&:watcher)

    private

    # Raises for an IO that is closed, or not open in one of the directions. Of an IO that IO.popen has made, wait_writable does
    # not know that another one writes for it.
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

    # (A loop that an iterator's block breaks would clear the error that ends the thread, which Ruby reads after it has closed the
    # scheduler. Array#all? is none.)
    def drained? = @live.empty? && @watches.keys.all?(&:transient)

    # Its turn has come.
    def start_watch(watch)
      return end_watch(@ready.shift) if watch.error

      watcher, given = watch.watcher, watch.given
      @resumes_since_poll += 1
      # Before the fiber is made: a finalizer may run there, and if it waits, it takes the first entry of the ready queue as well.
      @ready.shift
      release_watch(watch)
      fiber = Fiber.new(blocking: false, storage: watcher.instance_variable_get(:@storage)) { |*arguments| run_fiber(NO_SPAWNER, arguments, watcher) }
      @recorder.birth
      switch_to_new(fiber, watch.events.zero? ? nil : watch.events, given)
    rescue FiberError => error
      raise unless fiber && unborn?(fiber)

      # There is no memory for it: the error counts as one that has ended it.
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

    # Ends it without a fiber.
    def end_watch(watch)
      return if watch.done

      release_watch(watch)
      go_on_draining
    end

    def cancel_watchers
      @watches.keys.each do |watch|
        watch.watcher.__send__(:finish, :cancelled) unless watch.error
        end_watch(watch)
      end
    end

    # The IO is closed or has another file. Any thread may call this, so the rest is done when its turn comes.
    def interrupt_watch(watch, reason)
      return if watch.done || watch.error

      watch.watcher.__send__(:finish, reason)
      watch.error = reason
      enqueue(watch)
    end
  end
end

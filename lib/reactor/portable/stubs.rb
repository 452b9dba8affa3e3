# frozen_string_literal: true

require_relative "http_request"

module Reactor
  # Plain Ruby versions of the native library's functions other than the scheduler, for processes without that library.
  #
  # @api private
  class << Internal
    # @return [ObjectSpace::WeakMap, nil] its keys are this Ractor's schedulers
    def schedulers = Ractor.current[:__reactor_schedulers__]

    def schedulers=(map)
      Ractor.current[:__reactor_schedulers__] = map
    end

    # Tells each scheduler of this Ractor that the IO is about to be closed.
    #
    # @return [Symbol, nil] :interrupted if any scheduler has interrupted a fiber
    def announce_close(io)
      answer = nil
      schedulers&.each_key { |scheduler| answer = scheduler.prepare_close(io) || answer }
      answer
    end

    # @return [Integer] see {HTTPRequest.parse}
    def parse_request(bytes, env) = HTTPRequest.parse(bytes, env)

    # @return [nil] there is no pidfd without the native library
    def pidfd(_pid) = nil

    # @return [nil] the portable scheduler knows IO objects by identity
    def io_number(_io) = nil

    # Whether Ruby code may use an object that the VM has passed to a hook. Up to Ruby 3.4, closing an IO that another thread uses
    # waits on a mutex whose class the VM has cleared, and calling any method on it, even is_a?, crashes the process. ObjectSpace
    # skips such hidden objects. Walking it takes milliseconds, so all objects it finds are remembered.
    def visible?(blocker)
      return true if RUBY_VERSION >= "4.0"

      visible = Ractor.current[:__reactor_visible__] ||= ObjectSpace::WeakMap.new # by identity
      unless visible.key?(blocker)
        [Thread::Mutex, Thread::Queue, Thread].each { |type| ObjectSpace.each_object(type) { |object| visible[object] = true } }
      end
      visible.key?(blocker)
    end

    # @return [false] plain Ruby cannot lock a thread to its native thread
    def lock_native_thread = false

    # @return [nil] plain Ruby cannot change a thread's time slice
    def lengthen_time_slice = nil

    # @return [Boolean] whether an interrupt is pending that will end the thread's wait. Plain Ruby sees only Thread#raise and
    #   Thread#kill.
    def woken?(thread) = thread.pending_interrupt?

    # Runs the block in one Ractor at a time. The only lock that plain Ruby can share between Ractors is a file lock. If the file
    # system has no file locks, the block runs without a lock.
    def exclusively
      lock = begin
        File.open(__FILE__).tap { |file| file.flock(File::LOCK_EX) }
      rescue SystemCallError
        nil
      end
      yield
    ensure
      lock&.flock(File::LOCK_UN) # explicitly, because a child forked meanwhile holds the lock too
      lock&.close
    end

    # @return [Boolean] whether this is the path of a FIFO
    def fifo?(path)
      File.pipe?(path)
    rescue ArgumentError, TypeError, EncodingError
      false # not a path: File.open will report that
    end
  end
end

# frozen_string_literal: true

require_relative "http_request"

module Reactor
  # The methods that the native library defines besides the scheduler, in plain Ruby, for a process without that library.
  #
  # @api private
  class << Internal
    # @return [ObjectSpace::WeakMap, nil] whose keys are this Ractor's schedulers
    def schedulers = Ractor.current[:__reactor_schedulers__]

    def schedulers=(map)
      Ractor.current[:__reactor_schedulers__] = map
    end

    # Tells each scheduler of this Ractor that the IO is about to be closed.
    #
    # @return [Symbol, nil] :interrupted if one has interrupted a fiber
    def announce_close(io)
      answer = nil
      schedulers&.each_key { |scheduler| answer = scheduler.prepare_close(io) || answer }
      answer
    end

    # @return [Integer] see {HTTPRequest.parse}
    def parse_request(bytes, env) = HTTPRequest.parse(bytes, env)

    # @return [nil] there is no pidfd without the native library
    def pidfd(_pid) = nil

    # @return [nil] the portable scheduler knows its IO objects themselves
    def io_number(_io) = nil

    # Whether Ruby code may use an object that the VM gave to a hook. Up to Ruby 3.4, IO#close of an IO that another thread uses
    # waits on a mutex whose class the VM has cleared, and a message to it, even is_a?, ends the process. ObjectSpace leaves out
    # what is hidden. A walk takes milliseconds, so it remembers all that it finds.
    def visible?(blocker)
      return true if RUBY_VERSION >= "4.0"

      visible = Ractor.current[:__reactor_visible__] ||= ObjectSpace::WeakMap.new # by identity
      unless visible.key?(blocker)
        [Thread::Mutex, Thread::Queue].each { |type| ObjectSpace.each_object(type) { |object| visible[object] = true } }
      end
      visible.key?(blocker)
    end

    # @return [false] in plain Ruby a thread cannot be kept on its native thread
    def lock_native_thread = false

    # @return [nil] in plain Ruby a thread's time slice cannot be changed
    def lengthen_time_slice = nil

    # @return [Boolean] whether something is pending for the thread that ends its wait. In plain Ruby only Thread#raise and
    #   Thread#kill are seen.
    def woken?(thread) = thread.pending_interrupt?

    # Runs the block while no other Ractor does. In plain Ruby nothing but a lock on a file holds between Ractors. If the file
    # system has no locks, the block is run all the same.
    def exclusively
      lock = begin
        File.open(__FILE__).tap { |file| file.flock(File::LOCK_EX) }
      rescue SystemCallError
        nil
      end
      yield
    ensure
      lock&.flock(File::LOCK_UN) # a child forked meanwhile has the lock as well
      lock&.close
    end

    # @return [Boolean] whether this is the path of a FIFO
    def fifo?(path)
      File.pipe?(path)
    rescue ArgumentError, TypeError, EncodingError
      false # not a path: File.open reports it
    end
  end
end

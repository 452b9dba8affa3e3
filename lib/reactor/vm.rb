# frozen_string_literal: true

module Reactor
  # The functions of the native library.
  #
  # @api private
  module Internal
  end

  # Facts about the VM that Ruby's constants and methods do not tell.
  #
  # @api private
  module VM
    # Whether this is Windows.
    WINDOWS = RUBY_PLATFORM.match?(/mingw|mswin/)

    # The class of Ruby's "No live threads left. Deadlock?". It has a name, but no constant.
    FATAL = ObjectSpace.each_object(Class).find { |klass| Module.instance_method(:name).bind_call(klass) == "fatal" }

    # The version of the scheduler interface with regard to the order and meaning of the arguments of io_read and io_write: 4 from
    # Ruby 4.1 on, 3 before.
    BUFFER_CONTRACT = defined?(IO::Buffer::VERSION) && IO::Buffer::VERSION >= 3 ? 4 : 3

    # The end of `rb_thread_to_s` for a thread that waits for another thread without a time limit. (Thread#status is "sleep" for
    # any wait.) All known Rubies. M:N threads show it in other waits, too: `thread_sched_wait_events` knows no limit.
    SLEEPS_FOREVER = " sleep_forever>"

    # Whether the threads of the main Ractor are M:N threads. Those of other Ractors always are, where Ruby has them.
    MN_THREADS = RUBY_DESCRIPTION.include?("+MN")

    # Tell a thread that waits for a Ractor from one that waits for another thread, although both have the same status: by the
    # path of the method up to Ruby 3.4, and by its label from 3.4 on. All known Rubies.
    RACTOR_LABEL = /\ARactor(?:::Port)?[.#]/
    RACTOR_PATH = "<internal:ractor>"

    # The labels of `synchronize` in a backtrace. It is a C method, so its frame has its caller's location, unlike a method of the
    # same name in a program. From Ruby 3.4 on, labels include the class.
    LOCKS = { "'Thread::Mutex#synchronize'" => "Mutex", "'Monitor#synchronize'" => "Monitor", "`synchronize'" => "Mutex or Monitor" }.freeze

    # The labels of methods that unlock a Mutex while they wait. Up to Ruby 3.4, ConditionVariable#wait calls Mutex#sleep.
    UNLOCKERS = ["'Thread::Mutex#sleep'", "'Thread::ConditionVariable#wait'"].freeze
    UNLOCKERS_WITHOUT_CLASS = ["`sleep'", "`wait'"].freeze

    # Gives control to new fibers on behalf of blocking ones. If a blocking fiber made the switch and there were no memory for the
    # new fiber's stack, the VM would count one blocking fiber too few, and no fiber of the thread would have a scheduler any
    # more. So a non-blocking fiber makes the switch. An interrupt ends this fiber, and is raised in the root fiber. Trap handlers
    # and finalizers never run in it, because they may start fibers themselves.
    class Starter
      # Is given the fiber that asks, the new one and its arguments. Answers a FiberError if there is no memory.
      #
      # @return [Fiber]
      attr_reader :fiber

      def initialize
        @thread = Thread.current
        Internal.without_handlers(method(:make)) if Ractor.current == Ractor.main
        make unless @fiber
        @fiber.transfer(Fiber.current) # allocates the stack of @fiber now
      end

      # @return [Boolean]
      def usable? = @fiber.alive? && @thread.equal?(Thread.current)

      private

      def make
        return unless Thread.current.equal?(@thread) # another one runs the job

        @fiber = Fiber.new(blocking: false, storage: nil) do |maker|
          asker, fiber, arguments = maker.transfer
          while true
            asker, fiber, arguments = begin
              fiber.transfer(*arguments)
            rescue FiberError => error
              asker.transfer(error)
            end
          end
        end
      end
    end

    class << self
      # Reports an error that ended a fiber, as Ruby reports one that ended a thread. An error in the report is ignored, as in
      # Ruby.
      #
      # @param who [String, #inspect]
      # @param error [Exception]
      # @param what [String] rest of the first line
      # @return [void]
      def report_error(who, error, what = "terminated with exception (report_on_exception is true)")
        return unless Thread.current.report_on_exception

        Fiber.blocking { $stderr.write("#{name_of(who)} #{what}:\n#{message_of(error)}") }
      rescue StandardError, ScriptError
        nil # $stderr is closed or broken
      end

      # Gives the current fiber a copy of this storage. (Fiber#storage= is experimental, and warns.)
      #
      # @param storage [Hash, nil]
      # @return [void]
      def replace_storage(storage)
        Fiber.current.storage&.each_key { |key| Fiber[key] = nil }
        storage&.each { |key, value| Fiber[key] = value }
      end

      # Calls IO.select without waiting.
      #
      # @return [Array(Array, Array, Array), nil] the same objects that were given; nil if none is ready
      def select_now(readables, writables, exceptables)
        return IO.select(readables, writables, exceptables, 0) unless WINDOWS

        # Windows reports a failed connection only as an exceptional condition.
        exceptables ||= []
        connecting = Array === writables ? writables : []
        ready = IO.select(readables, writables, connecting | exceptables, 0) or return
        failed = (ready[2] & connecting).reject { |object| connected?(IO.try_convert(object)) }
        ready = [ready[0], ready[1] | failed, ready[2] & exceptables]
        ready unless ready.all?(&:empty?) # Ruby returns empty lists if none of several hundred sockets is ready
      rescue Errno::ENOTSOCK # Windows reports this for a closed socket
        raise Errno::EBADF
      end

      # Mutex#unlock removes the fiber it wakes from the mutex's waiting list. If that fiber raises before it has locked the mutex,
      # the mutex is free, but the next fiber in the list has not been told. Another unlock tells it.
      #
      # @param blocker the object the fiber waited for
      # @return [void]
      def hand_on_mutex(blocker)
        blocker.unlock if Internal.visible?(blocker) && Thread::Mutex === blocker && blocker.try_lock
      end

      private

      def connected?(socket)
        !socket.remote_address.nil?
      rescue SystemCallError
        false
      end

      def name_of(who)
        String === who ? who : who.inspect
      rescue StandardError, ScriptError
        Kernel.instance_method(:to_s).bind_call(who) # the program's `inspect` raises
      end

      def message_of(error)
        error.full_message
      rescue StandardError, ScriptError
        "#{error.class}\n" # its own methods raise
      end
    end
  end
end

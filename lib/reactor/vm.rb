# frozen_string_literal: true

module Reactor
  # The functions of the native library, and those that stand in for them without it (portable/stubs.rb).
  #
  # @api private
  module Internal
  end

  # Facts of the VM that no constant and no method of Ruby's has.
  #
  # @api private
  module VM
    # Whether this is Windows.
    WINDOWS = RUBY_PLATFORM.match?(/mingw|mswin/)

    # The class of Ruby's "No live threads left. Deadlock?". It has a name and no constant.
    FATAL = ObjectSpace.each_object(Class).find { |klass| klass.name == "fatal" }

    # The version of the scheduler interface that sets the order and the meaning of the arguments of io_read and io_write:
    # 4 from Ruby 4.1 on, 3 before.
    BUFFER_CONTRACT = defined?(IO::Buffer::VERSION) && IO::Buffer::VERSION >= 3 ? 4 : 3

    # For Thread.handle_interrupt in `unblock`: a Thread#raise that cut it would lose the wake-up. From Ruby 3.4.7 on the VM itself lets
    # none do so. By identity, because a call of `hash` would look for interrupts.
    UNBLOCK_MASK = ((RUBY_VERSION.split(".").map(&:to_i) <=> [3, 4, 7]) < 0 ? { Object => :never } : {}).compare_by_identity.freeze

    # The end of `rb_thread_to_s` for a thread that waits without a limit for another thread. Thread#status says "sleep" also with a
    # limit. All known Rubies.
    SLEEPS_FOREVER = " sleep_forever>"

    # A method of Ruby's in which a thread waits for a Ractor: its status is that of a thread that waits for another thread. The path
    # names it up to Ruby 3.4, and the label from 3.4 on. All known Rubies.
    RACTOR_LABEL = /\ARactor(?:::Port)?[.#]/
    RACTOR_PATH = "<internal:ractor>"

    # The line of ConditionVariable#wait or Mutex#sleep in a backtrace. `rb_mutex_sleep` calls the hook `kernel_sleep` for them, as does
    # Kernel#sleep, which waits for no other thread. All known Rubies. Up to 3.3 a line has no class, so Mutex#sleep counts as
    # Kernel#sleep there.
    CONDITION_WAIT = /\b(wait|Mutex#sleep)'\z/

    # The labels of `synchronize` in a backtrace. It is a method in C, so its frame has the place of its caller, which a program's own
    # method of that name has not. From Ruby 3.4 on a label has the class.
    LOCKS = { "'Thread::Mutex#synchronize'" => "Mutex", "'Monitor#synchronize'" => "Monitor", "`synchronize'" => "Mutex or Monitor" }.freeze

    # The labels of methods that unlock a Mutex while they wait. ConditionVariable#wait calls Mutex#sleep up to Ruby 3.4.
    UNLOCKERS = ["'Thread::Mutex#sleep'", "'Thread::ConditionVariable#wait'"].freeze
    UNLOCKERS_WITHOUT_CLASS = ["`sleep'", "`wait'"].freeze

    # Gives new fibers control on behalf of blocking ones. If there is no memory for the stack of a new fiber and the current fiber is
    # blocking, the VM counts one blocking fiber too few from then on, and no fiber of the thread has a scheduler any more. So a fiber
    # that is not blocking makes the switch. What interrupts it ends it, and is raised in the root fiber.
    class Starter
      def initialize
        @thread = Thread.current
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
        @fiber.transfer(Fiber.current) # so it gets its stack at once
      end

      # @return [Boolean]
      def usable? = @fiber.alive? && @thread.equal?(Thread.current)

      # @return what the current fiber is given when it has control again
      # @raise [FiberError] no memory
      def start(fiber, *arguments)
        answer = @fiber.transfer(Fiber.current, fiber, arguments)
        answer.is_a?(FiberError) ? raise(answer) : answer
      end
    end

    class << self
      # Reports an error that ended a fiber, as Ruby reports one that ends a thread. An error of the report is dropped, as Ruby does.
      #
      # @param fiber [Fiber, #inspect]
      # @param error [Exception]
      # @param what [String] what it did with the error
      # @return [void]
      def report_error(fiber, error, what = "terminated with exception (report_on_exception is true)")
        return unless Thread.current.report_on_exception

        Fiber.blocking { $stderr.write("#{fiber.inspect} #{what}:\n#{message_of(error)}") }
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

      # IO.select, asked not to wait.
      #
      # @return [Array(Array, Array, Array), nil] the same objects that were given; nil if none is ready
      def select_now(readables, writables, exceptables)
        return IO.select(readables, writables, exceptables, 0) unless WINDOWS

        # Windows reports a connection that has failed as an exceptional condition, and as nothing else.
        exceptables ||= []
        connecting = Array === writables ? writables : []
        ready = IO.select(readables, writables, connecting | exceptables, 0) or return
        failed = (ready[2] & connecting).reject { |object| connected?(IO.try_convert(object)) }
        ready = [ready[0], ready[1] | failed, ready[2] & exceptables]
        ready unless ready.all?(&:empty?) # Ruby's answer if none of some hundred sockets is ready
      rescue Errno::ENOTSOCK
        raise Errno::EBADF # Windows' answer for a socket that has been closed
      end

      # Mutex#unlock removes the fiber that it wakes from the mutex's waiting list. If that fiber raises before it has locked,
      # the mutex is free and the next fiber in the list is not told: an unlock tells it.
      #
      # @param blocker what the fiber waited for
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

      def message_of(error)
        error.full_message
      rescue StandardError, ScriptError
        "#{error.class}\n" # its own methods raise
      end
    end
  end
end

# frozen_string_literal: true

require_relative "observe/fiber_name"
require_relative "patches/io_close"
require_relative "patches/io_write"
require_relative "patches/fiber_inspect"
require_relative "patches/file"
require_relative "patches/copy_stream"
require_relative "patches/name_resolution"
require_relative "patches/forked_child"
require_relative "patches/socket_connect"
require_relative "patches/timeout"
require_relative "patches/virtual_time"

module Reactor
  # Every method of Ruby's that this library patches: {TABLE}. What each patch is for, and what it costs, stands in docs/patches.md.
  #
  # A patch is a module that is prepended. Each does what Ruby does where the current fiber has no scheduler of this library.
  # A program that makes no scheduler has nothing patched and pays nothing.
  #
  # @api private
  module Patches
    # A moment at which patches are installed. A Module, because the mark that it has come is a constant of it.
    class Moment < Module
      # Called once, by {Patches.install}.
      def install = TABLE.each { |patch| patch.install if patch.moment.equal?(self) && patch.for_this_ruby? }
    end

    # A module that is prepended to a class, a module or its singleton class.
    #
    # - `before`: the first Ruby version that does without; nil: every Ruby has it
    # - `condition`: is asked `needed?` at installation, if no version tells which Ruby does without; nil: it is not asked
    # - `replaceable`: whether Ruby code of another library that stands in the place of a method is left alone
    Patch = Data.define(:moment, :owner, :with, :before, :condition, :replaceable) do
      def initialize(before: nil, condition: nil, replaceable: false, **) = super

      # @return [Boolean] whether this Ruby needs it
      def for_this_ruby? = (before.nil? || RUBY_VERSION < before) && (condition.nil? || condition.needed?)

      # @return [Array<Symbol>] the methods that it patches
      def methods = with.instance_methods(false) + with.private_instance_methods(false)

      def install
        owner.prepend(with) unless replaceable && NameResolution.replaced?(owner, methods)
      end
    end

    # A moment of its own, because {AsyncSelector} needs to know of closed IOs, and only before Ruby 4.0.
    CLOSE = Moment.new
    SCHEDULER = Moment.new
    VIRTUAL_TIME = Moment.new

    close = [[IO, IOClose], [IO, IOReopen], [IO, IOHalfClose], [BasicSocket, IOHalfClose],
             [BasicSocket, SocketShutdown, { condition: SocketShutdown }]]

    scheduler = [
      [File, FileOpen], [File, FileSync], [File, FilePwrite, { before: "4.0" }], [File, FileClose], [File, FileLock],
      [IO.singleton_class, CopyStream], [IO, IOWrite, { condition: IOWrite }],
      [Fiber, FiberInspect],
      [Process.singleton_class, ForkedChild, { before: "4.0", condition: ForkedChild }],
      [Timeout.singleton_class, TimeoutException::Module, { condition: TimeoutException }],
      [Timeout, TimeoutException::Method, { condition: TimeoutException }]
    ]
    scheduler += [
      [Addrinfo.singleton_class, NameResolution::AddrinfoLookup], [Addrinfo, NameResolution::AddrinfoReverse],
      [Socket.singleton_class, NameResolution::SocketLookup], [Socket, SocketConnect, { condition: SocketConnect }],
      [IPSocket.singleton_class, NameResolution::IPSocketLookup], [IPSocket, NameResolution::IPSocketReverse],
      [TCPSocket, NameResolution::TCPSocketConnect], [TCPServer, NameResolution::TCPServerBind],
      [UDPSocket, NameResolution::UDPSocketAddress]
    ].map { |owner, with, options = {}| [owner, with, { replaceable: true, **options }] }

    virtual_time = [
      [Process.singleton_class, VirtualTime::ProcessClock], [Time.singleton_class, VirtualTime::TimeNow],
      [Kernel, VirtualTime::PrivateSleep], [Kernel.singleton_class, VirtualTime::KernelSleep],
      [Thread::Queue, VirtualTime::QueuePop], [Thread::SizedQueue, VirtualTime::QueuePop],
      [Thread::SizedQueue, VirtualTime::QueuePush], [Thread, VirtualTime::ThreadJoin]
    ]

    # @return [Array<Patch>] in the order in which they are installed
    TABLE = Ractor.make_shareable(
      { CLOSE => close, SCHEDULER => scheduler, VIRTUAL_TIME => virtual_time }.flat_map do |moment, rows|
        rows.map { |owner, with, options = {}| Patch.new(moment:, owner:, with:, **options) }
      end
    )

    class << self
      # Installs each set of patches once in the life of a process, also if several Ractors make their first scheduler at the
      # same moment. Module#prepend is not safe there: if two Ractors prepend to one class at once, a module may be lost, or
      # Ruby crashes. So one Ractor installs, and every other Ractor waits until it has.
      #
      # @param sets [Array<Module>] each responds to install, which may be called twice
      # @return [void]
      def install(*sets)
        return if sets.all? { |set| installed?(set) }

        # In a blocking fiber, because the wait for another Ractor must not run this Ractor's fibers. Interrupts are
        # deferred, because a set that is installed half-way would stay so.
        Thread.handle_interrupt(Object => :never) do
          Fiber.blocking { Internal.exclusively { sets.each { |set| install_once(set) } } }
        end
      end

      private

      # The mark is a constant, because other Ractors can read nothing else of a module.
      def installed?(set) = set.const_defined?(:INSTALLED, false)

      def install_once(set)
        return if installed?(set)

        set.install
        set.const_set(:INSTALLED, true)
        set.private_constant(:INSTALLED)
      end
    end
  end
end

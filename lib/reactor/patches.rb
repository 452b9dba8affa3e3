# frozen_string_literal: true

require_relative "patches/installer"
require_relative "patches/io_close"
require_relative "patches/io_half_close"
require_relative "patches/io_reopen"
require_relative "patches/file"
require_relative "patches/copy_stream"
require_relative "patches/name_resolution/addrinfo"
require_relative "patches/name_resolution/socket"
require_relative "patches/name_resolution/tcp"
require_relative "patches/name_resolution/udp"
require_relative "patches/forked_child"
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
      # Called once, by the {Installer}.
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

    close = [[IO, IOClose], [IO, IOReopen], [IO, IOHalfClose], [BasicSocket, IOHalfClose]]

    scheduler = [
      [File, FileOpen], [File, FileSync], [File, FilePwrite, { before: "4.0" }], [File, FileClose], [File, FileLock],
      [IO.singleton_class, CopyStream],
      [Process.singleton_class, ForkedChild, { before: "4.0" }],
      [Timeout.singleton_class, TimeoutException::Module, { condition: TimeoutException }],
      [Timeout, TimeoutException::Method, { condition: TimeoutException }]
    ]
    scheduler += [
      [Addrinfo.singleton_class, NameResolution::AddrinfoLookup], [Addrinfo, NameResolution::AddrinfoReverse],
      [Socket.singleton_class, NameResolution::SocketLookup],
      [IPSocket.singleton_class, NameResolution::IPSocketLookup], [IPSocket, NameResolution::IPSocketReverse],
      [TCPSocket.singleton_class, NameResolution::TCPSocketLookup], [TCPSocket, NameResolution::TCPSocketConnect],
      [TCPServer, NameResolution::TCPServerBind], [UDPSocket, NameResolution::UDPSocketAddress]
    ].map { |patch| [*patch, { replaceable: true }] }

    virtual_time = [
      [Process.singleton_class, VirtualTime::ProcessClock], [Time.singleton_class, VirtualTime::TimeNow],
      [Kernel, VirtualTime::KernelSleep], [Kernel.singleton_class, VirtualTime::KernelSleep],
      [Thread::Queue, VirtualTime::QueuePop], [Thread::SizedQueue, VirtualTime::QueuePop],
      [Thread::SizedQueue, VirtualTime::QueuePush], [Thread, VirtualTime::ThreadJoin]
    ]

    # @return [Array<Patch>] in the order in which they are installed
    TABLE = Ractor.make_shareable(
      { CLOSE => close, SCHEDULER => scheduler, VIRTUAL_TIME => virtual_time }.flat_map do |moment, rows|
        rows.map { |owner, with, options = {}| Patch.new(moment:, owner:, with:, **options) }
      end
    )

    # Installs the patches of these moments, unless they are.
    #
    # @param moments [Array<Moment>]
    # @return [void]
    def self.install(*moments) = Installer.install(*moments)
  end
end

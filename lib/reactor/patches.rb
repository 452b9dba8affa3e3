# frozen_string_literal: true

require_relative "observe/fiber_name"
require_relative "patches/io_close"
require_relative "patches/io_write"
require_relative "patches/file"
require_relative "patches/copy_stream"
require_relative "patches/name_resolution"
require_relative "patches/forked_child"
require_relative "patches/socket_connect"
require_relative "patches/socket_mode"
require_relative "patches/timeout"
require_relative "patches/virtual_time"

module Reactor
  # The methods of Ruby that this library patches: {TABLE}. docs/patches.md says what each patch is for and what it costs.
  #
  # A patch redefines a method. It does what Ruby does unless the current fiber has a scheduler of this library. Nothing is
  # patched, and nothing is slower, until a program makes a scheduler.
  #
  # The class keeps Ruby's method under another, private name: `reactor_`, the class and the method. The patch calls it by this
  # name instead of `super`. A prepended module would be shorter, but then an alias of the method, made by the program or by
  # Minitest's `stub`, would be one of the module's method, whose `super` calls what the program then defines in place of it: the
  # alias itself, without end. And the owner is in the name because a subclass may have the same patch.
  #
  # @api private
  module Patches
    # A set of patches that are installed together. It is a Module, because a constant in it records that the set is installed.
    class PatchSet < Module
      # Called once, by {Patches.install}.
      def install = TABLE.each { |patch| patch.install if patch.set.equal?(self) && patch.for_this_ruby? }
    end

    # A module whose methods replace those of a class, a module or its singleton class. Its `installed` is called once they have.
    #
    # - `before`: the first Ruby version that does not need the patch; nil: all versions need it
    # - `condition`: an object whose `needed?` is asked at installation, if the version alone does not tell; nil: nothing is asked
    # - `replaceable`: whether a method that the program has replaced, for example by resolv-replace, is left alone. One that a
    #   prepended module wraps is patched below the module
    Patch = Data.define(:set, :owner, :with, :before, :condition, :replaceable) do
      def initialize(before: nil, condition: nil, replaceable: false, **) = super

      # @return [Boolean] whether this Ruby needs the patch
      def for_this_ruby? = (before.nil? || RUBY_VERSION < before) && (condition.nil? || condition.needed?)

      # @return [Array<Symbol>] the patched methods
      def methods = with.instance_methods(false) + with.private_instance_methods(false)

      # @return [Symbol] the name that Ruby's method has now
      def name_of_original(name) = :"reactor_#{(owner.singleton_class? ? owner.attached_object : owner).name.downcase.gsub("::", "_")}_#{name}"

      def install
        methods.each { |name| replace(name) }
        with.installed if with.respond_to?(:installed)
      end

      private

      # Does nothing if the program has removed the method.
      def replace(name)
        visibility = %i[public protected private].find { |kind| owner.__send__(:"#{kind}_method_defined?", name) } or return
        return if replaceable && replaced?(name)

        unless original(name)
          owner.class_eval("def #{name}(...) = super", __FILE__, __LINE__) # follows its superclass
        end
        owner.define_method(name_of_original(name), original(name))
        owner.__send__(:private, name_of_original(name))
        owner.define_method(name, with.instance_method(name))
        owner.__send__(visibility, name)
      end

      def replaced?(name)
        file, = (original(name) || owner.instance_method(name)).source_location
        file && !file.start_with?("<internal:") && File.basename(file) != "socket.rb"
      end

      # @return [UnboundMethod, nil] the owner's own; not that of a prepended module, which calls it
      def original(name)
        method = owner.instance_method(name)
        method = method.super_method until method.nil? || method.owner.equal?(owner)
        method
      end
    end

    # A set of its own, because {AsyncSelector} installs only these patches: it needs to be told about closed IOs, and only before
    # Ruby 4.0.
    CLOSE = PatchSet.new
    SCHEDULER = PatchSet.new
    VIRTUAL_TIME = PatchSet.new

    close = [[IO, IOClose], [IO, IOReopen], [IO, IOHalfClose], [BasicSocket, SocketHalfClose],
             [BasicSocket, SocketShutdown, { condition: SocketShutdown }]]

    scheduler = [
      [File, FileOpen], [IO, Sync], [File, FilePwrite, { before: "4.0" }], [File, FileClose], [File, FileLock],
      [IO.singleton_class, CopyStream, { replaceable: true }], [IO.singleton_class, PathMethods],
      [IO, IOWrite, { condition: IOWrite }], [IO, IOPuts, { replaceable: true }], [BasicSocket.singleton_class, SocketMode, { condition: SocketMode }],
      [Process.singleton_class, ForkedChild, { before: "4.0", condition: ForkedChild }],
      [Timeout.singleton_class, TimeoutException, { condition: TimeoutException }],
      [Timeout, TimeoutException, { condition: TimeoutException }]
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
      [Kernel, VirtualTime::KernelSleep], [Kernel.singleton_class, VirtualTime::KernelSleep],
      [Thread::Queue, VirtualTime::QueuePop], [Thread::SizedQueue, VirtualTime::SizedQueueWaits],
      [Thread, VirtualTime::ThreadJoin]
    ]

    # @return [Array<Patch>] in the order in which they are installed
    TABLE = Ractor.make_shareable(
      { CLOSE => close, SCHEDULER => scheduler, VIRTUAL_TIME => virtual_time }.flat_map do |set, rows|
        rows.map { |owner, with, options = {}| Patch.new(set:, owner:, with:, **options) }
      end
    )

    class << self
      # Installs each set of patches once per process, even if several Ractors make their first scheduler at the same time: one
      # Ractor installs while the others wait.
      #
      # @param sets [Array<Module>] each responds to `install`, and tolerates a second call
      # @return [void]
      def install(*sets)
        return if sets.all? { |set| installed?(set) }

        # Runs in a blocking fiber, because this Ractor's other fibers must not run while it waits for another Ractor. Interrupts
        # are deferred, because a half-installed set would stay half-installed.
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

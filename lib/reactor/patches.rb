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
  # Every method of Ruby's that this library patches: when, on which Ruby, and at what price. The methods are installed from
  # {TABLE}, and the table in docs/patches.md is printed from it (rake docs:patches).
  #
  # A patch is a module that is prepended. Each does what Ruby does where the current fiber has no scheduler of this library.
  # A program that makes no scheduler has nothing patched and pays nothing.
  #
  # @api private
  module Patches
    # A moment at which patches are installed. A Module, because the mark that it has come is a constant of it.
    class Moment < Module
      # @return [String] the moment in words, in Markdown
      attr_reader :label

      def initialize(label)
        super()
        @label = label.freeze
      end

      # @return [Array<Patch>] the patches of this moment
      def patches = TABLE.select { |patch| patch.moment.equal?(self) && patch.for_this_ruby? }

      # Called once, by the {Installer}.
      def install = patches.each(&:install)
    end

    # Methods of one class or module.
    #
    # - `owner`: the class or module, or its singleton class
    # - `methods`: the names of the methods
    # - `with`: the module that is prepended to the owner, with exactly these methods
    # - `moment`: when it is installed
    # - `before`: the first Ruby version that does without; nil: every Ruby has it
    # - `condition`: is asked `needed?` at installation, if no version tells which Ruby does without; nil: it is not asked
    # - `replaceable`: whether Ruby code of another library that stands in the place of a method is left alone
    # - `purpose`: what it is for, in Markdown
    # - `price`: what a call costs in addition, in Markdown
    Patch = Data.define(:owner, :methods, :with, :moment, :before, :condition, :replaceable, :purpose, :price) do
      def initialize(before: nil, condition: nil, replaceable: false, **) = super

      # @return [Boolean] whether this Ruby needs it
      def for_this_ruby? = (before.nil? || RUBY_VERSION < before) && (condition.nil? || condition.needed?)

      # @return [String] the Rubies that need it, in Markdown
      def rubies = condition&.needed_where || (before ? "before #{before}" : "all")

      def install
        owner.prepend(with) unless replaceable && NameResolution.replaced?(owner, methods)
      end

      # @return [Array<String>] the methods as Ruby's documentation writes them, for example "IO#close" and "IO.copy_stream"
      def names = methods.map { |method| method == :initialize ? "#{owner}.new" : "#{place}#{method}" }

      # @return [String] what stands before the names of the methods, for example "IO#" and "IO."
      def place = owner.singleton_class? ? "#{owner.attached_object}." : "#{owner}#"
    end

    # A moment of its own, because {AsyncSelector} needs to know of closed IOs, and only before Ruby 4.0.
    CLOSE = Moment.new("first scheduler, or before Ruby 4.0 the first `AsyncSelector`")
    SCHEDULER = Moment.new("first scheduler")
    VIRTUAL_TIME = Moment.new("first `virtual_time`")

    current = "asks for the current scheduler"
    resolves = "#{current}; in its fibers looks whether the host is an address"
    clock = "looks for the thread's virtual clock"

    # Rows in the order in which they are installed.
    rows = [
      { moment: CLOSE, owner: IO, methods: %i[close], with: IOClose,
        purpose: "wakes the fibers that wait for this IO", price: "one look-up for each scheduler of the Ractor" },
      { moment: CLOSE, owner: IO, methods: %i[reopen], with: IOReopen,
        purpose: "wakes the fibers that wait for this IO, or has them wait for the new file", price: "two look-ups for each scheduler of the Ractor" },
      { moment: CLOSE, owner: IO, methods: %i[close_read close_write], with: IOHalfClose,
        purpose: "wakes the fibers that wait for what is closed", price: "two look-ups for each scheduler of the Ractor" },
      { moment: CLOSE, owner: BasicSocket, methods: %i[close_read close_write], with: IOHalfClose,
        purpose: "wakes the fibers that wait for what is closed", price: "two look-ups for each scheduler of the Ractor" },

      { moment: SCHEDULER, owner: File, methods: %i[initialize], with: FileOpen,
        purpose: "opening a FIFO stops no other fiber", price: "#{current}; in its fibers asks the clock, and a stat(2)" },
      { moment: SCHEDULER, owner: File, methods: %i[fsync fdatasync], with: FileSync,
        purpose: "by io_uring or a worker", price: current },
      { moment: SCHEDULER, owner: File, methods: %i[pwrite], with: FilePwrite, before: "4.0",
        purpose: "by a worker if it is large or has been slow", price: current },
      { moment: SCHEDULER, owner: File, methods: %i[close], with: FileClose,
        purpose: "of a large file that was written: by a worker", price: "#{current}; in its fibers asks the clock, and fcntl(2), and fstat(2) if it is writable" },
      { moment: SCHEDULER, owner: File, methods: %i[flock], with: FileLock,
        purpose: "waits without stopping other fibers", price: current },
      { moment: SCHEDULER, owner: IO.singleton_class, methods: %i[copy_stream], with: CopyStream,
        purpose: "reads files by the pool, chunk by chunk; copies on a thread of its own where a descriptor blocks",
        price: "#{current}; in its fibers fcntl(2) of each end" },
      { moment: SCHEDULER, owner: Process.singleton_class, methods: %i[_fork daemon], with: ForkedChild, before: "4.0",
        purpose: "the child has no scheduler, as on Ruby 4.0", price: "in the child one look-up" },
      { moment: SCHEDULER, owner: Timeout.singleton_class, methods: %i[timeout], with: TimeoutException::Module, condition: TimeoutException,
        purpose: "no bare rescue in the block swallows the timeout", price: "#{current}; in its fibers makes one exception" },
      { moment: SCHEDULER, owner: Timeout, methods: %i[timeout], with: TimeoutException::Method, condition: TimeoutException,
        purpose: "calls `Timeout.timeout`", price: "one call more" },

      { owner: Addrinfo.singleton_class, methods: %i[getaddrinfo tcp udp ip], with: NameResolution::AddrinfoLookup },
      { owner: Addrinfo, methods: %i[getnameinfo], with: NameResolution::AddrinfoReverse, price: current },
      { owner: Socket.singleton_class, methods: %i[getaddrinfo getnameinfo gethostbyname sockaddr_in pack_sockaddr_in tcp],
        with: NameResolution::SocketLookup },
      { owner: IPSocket.singleton_class, methods: %i[getaddress], with: NameResolution::IPSocketLookup },
      { owner: TCPSocket.singleton_class, methods: %i[gethostbyname], with: NameResolution::TCPSocketLookup, price: current },
      { owner: IPSocket, methods: %i[addr peeraddr], with: NameResolution::IPSocketReverse, price: current },
      { owner: TCPServer, methods: %i[initialize], with: NameResolution::TCPServerBind },
      { owner: UDPSocket, methods: %i[connect bind send], with: NameResolution::UDPSocketAddress },
      { owner: TCPSocket, methods: %i[initialize], with: NameResolution::TCPSocketConnect,
        purpose: "the resolver looks names up meanwhile; Happy Eyeballs in one fiber" }
    ].map { |row| row[:moment] ? row : { moment: SCHEDULER, replaceable: true, purpose: "the resolver looks names up meanwhile", price: resolves, **row } }

    rows += [
      { owner: Process.singleton_class, methods: %i[clock_gettime], with: VirtualTime::ProcessClock, purpose: "shows virtual time" },
      { owner: Time.singleton_class, methods: %i[now], with: VirtualTime::TimeNow, purpose: "shows virtual time" },
      { owner: Kernel, methods: %i[sleep], with: VirtualTime::KernelSleep, purpose: "returns virtual seconds" },
      { owner: Kernel.singleton_class, methods: %i[sleep], with: VirtualTime::KernelSleep, purpose: "returns virtual seconds" },
      { owner: Thread::Queue, methods: %i[pop shift deq], with: VirtualTime::QueuePop },
      { owner: Thread::SizedQueue, methods: %i[pop shift deq], with: VirtualTime::QueuePop },
      { owner: Thread::SizedQueue, methods: %i[push enq <<], with: VirtualTime::QueuePush },
      { owner: Thread, methods: %i[join], with: VirtualTime::ThreadJoin }
    ].map { |row| { moment: VIRTUAL_TIME, purpose: "its time limit is virtual", price: clock, **row } }

    # @return [Array<Patch>]
    TABLE = Ractor.make_shareable(rows.map { |row| Patch.new(**row) })

    class << self
      # Installs the patches of these moments, unless they are.
      #
      # @param moments [Array<Moment>]
      # @return [void]
      def install(*moments) = Installer.install(*moments)

      # @return [String] {TABLE} in Markdown
      def to_markdown
        rows = TABLE.map do |patch|
          first, *rest = patch.names
          names = [first, *rest.map { |name| name.delete_prefix(patch.place.chop) }].map { |name| "`#{name}`" }
          [names.join(", "), patch.moment.label, patch.rubies, patch.purpose, patch.price]
        end
        head = ["method", "installed by the", "Ruby", "what for", "price of a call"]
        [head, head.map { "---" }, *rows].map { |cells| "| #{cells.join(" | ")} |\n" }.join
      end
    end
  end
end

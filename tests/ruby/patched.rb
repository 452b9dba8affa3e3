# frozen_string_literal: true

require "socket"
require "tempfile"
require "timeout"
require "reactor/testing"
require_relative "../inside"

# Cells of test_patches.rb: before or after a method is patched, a program changes the method in some way, and calls it on a
# thread and in a fiber. A name is "method|way|when".
module Patched
  class << self
    def pipe = IO.pipe.tap { |ends| KEPT.concat(ends) }
    def file = Tempfile.new.tap { |file| KEPT << file }
    def server = TCPServer.new("127.0.0.1", 0).tap { |server| KEPT << server }
    def port = server.addr[1]
    def queue(element = nil) = Thread::SizedQueue.new(1).tap { |queue| queue << element if element }
    def udp = UDPSocket.new.tap { |socket| KEPT << socket }
  end

  KEPT = []

  # Calls each patched method in a way that shows a result.
  CALLS = {
    "IO#close" => -> { from, = pipe; from.close; from.closed? },
    "IO#reopen" => -> { from, = pipe; from.reopen(File::NULL).read },
    "IO#close_read" => -> { IO.popen("cat", "r+").tap { |io| KEPT << io; io.close_read }.closed? },
    "IO#close_write" => -> { IO.popen("cat", "r+").tap { |io| KEPT << io; io.close_write }.read },
    "BasicSocket#close_read" => -> { UNIXSocket.pair.first.tap(&:close_read).closed? },
    "BasicSocket#close_write" => -> { one, other = UNIXSocket.pair; one.close_write; other.read },
    "File.new" => -> { File.open(File::NULL, "w", &:path) },
    "IO#fsync" => -> { File.open(file.path, "w", &:fsync) },
    "IO#fdatasync" => -> { File.open(file.path, "w", &:fdatasync) },
    "File#pwrite" => -> { File.open(file.path, "w") { |io| io.pwrite("ab", 1) } },
    "File#close" => -> { File.new(File::NULL).tap(&:close).closed? },
    "File#flock" => -> { File.open(file.path, "w") { |io| io.flock(File::LOCK_EX) } },
    "IO.read" => -> { IO.read(File::NULL) },
    "IO.binread" => -> { IO.binread(File::NULL) },
    "IO.readlines" => -> { IO.readlines(File::NULL) },
    "IO.write" => -> { IO.write(File::NULL, "a") },
    "IO.binwrite" => -> { IO.binwrite(File::NULL, "a") },
    "IO.sysopen" => -> { IO.for_fd(IO.sysopen(File::NULL)).tap(&:close).closed? },
    "IO#puts" => -> { from, to = pipe; to.puts("a line", 2); from.readpartial(64) },
    "BasicSocket.for_fd" => -> { UNIXSocket.pair.tap { |pair| KEPT.concat(pair) }.then { |one,| UNIXSocket.for_fd(one.fileno).tap { |socket| socket.autoclose = false } }.class.name },
    "IO.copy_stream" => -> { source = file; File.write(source.path, "abc"); IO.copy_stream(source.path, File::NULL) },
    "Process._fork" => -> { Process.wait2(fork { exit! 3 })[1].exitstatus },
    "Process.daemon" => -> { Process.wait2(fork { (Process.daemon(true, true); exit! 3) rescue exit! 4 })[1].exitstatus },
    "Timeout.timeout" => -> { Timeout.timeout(600) { :in_time } },
    "Timeout#timeout" => -> { Object.new.extend(Timeout).__send__(:timeout, 600) { :in_time } },
    "Addrinfo.getaddrinfo" => -> { Addrinfo.getaddrinfo("127.0.0.1", 80, nil, :STREAM).map(&:ip_port) },
    "Addrinfo.tcp" => -> { Addrinfo.tcp("127.0.0.1", 80).ip_port },
    "Addrinfo.udp" => -> { Addrinfo.udp("127.0.0.1", 80).ip_port },
    "Addrinfo.ip" => -> { Addrinfo.ip("127.0.0.1").ip_address },
    "Addrinfo#getnameinfo" => -> { Addrinfo.tcp("127.0.0.1", 81).getnameinfo(Socket::NI_NUMERICHOST | Socket::NI_NUMERICSERV) },
    "Socket.getaddrinfo" => -> { Socket.getaddrinfo("127.0.0.1", 80, nil, :STREAM, nil, nil, false).size },
    "Socket.getnameinfo" => -> { Socket.getnameinfo(["AF_INET", 81, "127.0.0.1"], Socket::NI_NUMERICHOST | Socket::NI_NUMERICSERV) },
    "Socket.sockaddr_in" => -> { Socket.sockaddr_in(80, "127.0.0.1").bytesize },
    "Socket.pack_sockaddr_in" => -> { Socket.pack_sockaddr_in(80, "127.0.0.1").bytesize },
    "Socket.tcp" => -> { Socket.tcp("127.0.0.1", port) { |socket| socket.remote_address.ip_address } },
    "IPSocket.getaddress" => -> { IPSocket.getaddress("127.0.0.1") },
    "IPSocket#addr" => -> { server.addr(:numeric).last },
    "IPSocket#peeraddr" => -> { TCPSocket.open("127.0.0.1", port) { |socket| socket.peeraddr(:numeric).last } },
    "TCPServer.new" => -> { TCPServer.new("127.0.0.1", 0).tap { |server| KEPT << server }.class.name },
    "TCPSocket.new" => -> { TCPSocket.new("localhost", port).tap { |socket| KEPT << socket }.class.name },
    "UDPSocket#connect" => -> { udp.connect("127.0.0.1", 9) },
    "UDPSocket#bind" => -> { udp.bind("127.0.0.1", 0) },
    "UDPSocket#send" => -> { udp.send("x", 0, "127.0.0.1", 9) },
    "Process.clock_gettime" => -> { Process.clock_gettime(Process::CLOCK_MONOTONIC, :second).class.name },
    "Time.now" => -> { Time.now.class.name },
    "Time.new" => -> { Time.new(2026, 1, 1, in: "UTC").year },
    "Kernel#sleep" => -> { sleep(0).class.name },
    "Kernel.sleep" => -> { Kernel.sleep(0).class.name },
    "Thread::Queue#pop" => -> { Thread::Queue.new.tap { |queue| queue << 1 }.pop(timeout: 600) },
    "Thread::Queue#shift" => -> { Thread::Queue.new.tap { |queue| queue << 1 }.shift(timeout: 600) },
    "Thread::Queue#deq" => -> { Thread::Queue.new.tap { |queue| queue << 1 }.deq(timeout: 600) },
    "Thread::SizedQueue#pop" => -> { queue(1).pop(timeout: 600) },
    "Thread::SizedQueue#shift" => -> { queue(1).shift(timeout: 600) },
    "Thread::SizedQueue#deq" => -> { queue(1).deq(timeout: 600) },
    "Thread::SizedQueue#push" => -> { queue.push(1, timeout: 600).size },
    "Thread::SizedQueue#enq" => -> { queue.enq(1, timeout: 600).size },
    "Thread#join" => -> { Thread.new {}.join(600).class.name }
  }.freeze

  # How programs change a method.
  WAYS = {
    "nothing" => ->(*) {},
    "alias, then def" => lambda do |owner, name|
      owner.alias_method(:"#{name}_wrapped", name)
      define(owner, name) { |*given, **options, &block| seen { __send__(:"#{name}_wrapped", *given, **options, &block) } }
    end,
    "an UnboundMethod" => lambda do |owner, name|
      original = owner.instance_method(name)
      define(owner, name) { |*given, **options, &block| seen { original.bind_call(self, *given, **options, &block) } }
    end,
    "prepend" => ->(owner, name) { owner.prepend(around(name)) },
    "include" => ->(owner, name) { owner.include(around(name)) }, # has no effect on a method of the class
    "Minitest's stub" => lambda do |owner, name|
      object = owner.singleton_class? ? owner.attached_object : (owner.allocate if owner.respond_to?(:allocate) && owner != Thread)
      next unless object.respond_to?(name)

      object.singleton_class.class_eval do
        alias_method(:"__minitest_stub__#{name}", name)
        define_method(name) { |*, **| :stubbed }
        object.public_send(name)
        undef_method(name)
        alias_method(name, :"__minitest_stub__#{name}")
        undef_method(:"__minitest_stub__#{name}")
      end
    end,
    "another visibility" => ->(owner, name) { [:private, visibility(owner, name)].each { |each| owner.__send__(each, name) } },
    "remove_method" => ->(owner, name) { owner.remove_method(name) if owner.instance_methods(false).include?(name) || owner.private_instance_methods(false).include?(name) },
    "undef_method" => ->(owner, name) { owner.undef_method(name) },
    "def" => ->(owner, name) { define(owner, name) { |*| seen { Kernel.raise KeyError, "replaced" } } }
  }.freeze

  SEEN = []

  class << self
    def visibility(owner, name) = %i[public protected private].find { |kind| owner.__send__(:"#{kind}_method_defined?", name) }.to_s

    # @return [String] the key of CALLS
    def label(patch, name)
      return "#{patch.owner}.new" if name == :initialize

      patch.owner.singleton_class? ? "#{patch.owner.attached_object}.#{name}" : "#{patch.owner}##{name}"
    end

    def methods = Reactor::Patches::TABLE.select(&:for_this_ruby?).flat_map { |patch| patch.methods.map { |name| [label(patch, name), [patch, name]] } }.to_h

    def cell(name)
      label, way, time = name.split("|")
      $VERBOSE = nil # Ruby warns of what the program does
      patch, method = methods.fetch(label)
      install(patch) if time == "after"
      instance_exec(patch.owner, method, &WAYS.fetch(way))
      call = CALLS.fetch(label)
      plain = [visibility(patch.owner, method), outcome(call)] if time == "before"
      install(patch) if time == "before"
      # What surfaces where: before the patches, and then on a thread without a scheduler and in a fiber.
      { "plain" => plain, "thread" => [visibility(patch.owner, method), outcome(call)], "fiber" => run(patch) { outcome(call) } }
    end

    private

    def install(patch) = Reactor::Patches.install(*[Reactor::Patches::CLOSE, Reactor::Patches::SCHEDULER, patch.set].uniq)

    def run(patch, &) = patch.set == Reactor::Patches::VIRTUAL_TIME ? Reactor::Testing.virtual_time(&) : Reactor.run(&)

    # What a call does, and how often the program's own method was called.
    def outcome(call)
      SEEN.clear
      value = instance_exec(&call)
      [value, SEEN.size]
    rescue StandardError, SystemStackError => error
      [error.class.name, SEEN.size]
    end

    def define(owner, name, &body)
      kept = visibility(owner, name)
      owner.define_method(name, &body)
      owner.__send__(kept, name)
    end

    def around(name)
      Module.new do
        define_method(name) { |*given, **options, &block| seen { super(*given, **options, &block) } }
        private name if %i[initialize sleep].include?(name)
      end
    end
  end
end

# Called in any object.
module Kernel
  private

  def seen
    Patched::SEEN << 1
    yield
  end
end

# frozen_string_literal: true

require "delegate"
require "fileutils"
require "io/nonblock"
require "socket"
require "tmpdir"
require "timeout"
require_relative "../inside"
require_relative "../ruby/platform"
extend Platform::Libraries

optional "pty"

# Calls with arguments that no program has a reason to pass: see bin/check wild.
module Wild
  # Raised by the objects that are passed.
  class Raised < StandardError
  end

  # Ends a wait that nothing else ends.
  class Over < Exception # rubocop:disable Lint/InheritException -- no rescue in the call may catch it
  end

  class OwnIO < IO
  end

  class OwnFile < File
  end

  class OwnBuffer < IO::Buffer
  end

  # Answers every message, those of Object as well, by its block.
  class Everything < BasicObject
    def initialize(&action) = @action = action

    def method_missing(...) = @action.call

    def respond_to_missing?(...) = true
  end

  # What the text of a call names, and what is closed after it.
  class World
    # A number that no other descriptor gets.
    HIGH = Platform::WINDOWS ? 60 : 900

    attr_reader :s

    # @param scheduler [Reactor::Scheduler]
    def initialize(scheduler)
      @s = scheduler
      @ios = []
    end

    def run(text) = instance_eval(text)

    def close
      @ios.each do |io|
        io.close unless io.closed?
      rescue SystemCallError, IOError, FrozenError
        nil # another object had its descriptor, or the call has changed it
      end
      File.unlink("file") if Platform::WINDOWS && File.exist?("file")
    rescue Errno::EACCES
      nil # it is open in what the call has left
    end

    # What is made is no part of the call: no other fiber runs meanwhile.
    def self.aside(*names)
      names.each do |name|
        made = instance_method(name)
        define_method(name) { |*arguments| Fiber.blocking { made.bind_call(self, *arguments) } }
      end
    end
    private_class_method :aside

    def track(io) = io.tap { @ios << io }

    def pipe = IO.pipe.each { |io| track(io) }

    def reader(text = nil) = pipe.then { |r, w| w.syswrite(text) if text; r }

    def writer = pipe.last

    def ended = pipe.then { |r, w| w.close; r }

    def broken = pipe.then { |r, w| r.close; w }

    def full
      pipe.last.tap do |w|
        w.fcntl(1031, 4096) unless Platform::WINDOWS # F_SETPIPE_SZ
        nil until w.write_nonblock("x" * 4096, exception: false) == :wait_writable
      end
    end

    def pair = UNIXSocket.pair.each { |io| track(io) }

    def socket(text = nil) = pair.then { |a, b| b.syswrite(text) if text; a }

    def listener
      return track(TCPServer.new("127.0.0.1", 0)) if Platform::WINDOWS

      track(UNIXServer.new("#{Dir.pwd}/#{@ios.size}.socket")).tap { |server| File.unlink(server.path) }
    end

    def udp = track(UDPSocket.new)

    def file(text = "text" * 4, mode = "w+", type = File)
      path = "file"
      File.binwrite(path, text) unless mode.start_with?("w")
      track(type.new(path, mode)).tap do |io|
        io.syswrite(text) && io.sysseek(0) if mode.start_with?("w")
        File.unlink(path) unless Platform::WINDOWS # where no open file is
      end
    end

    def null = track(File.open(File::NULL, "r+"))

    def terminal = Platform::WINDOWS ? null : PTY.open.each { |io| track(io) }.last

    def closed = reader.tap(&:close)

    def closed_file = file.tap(&:close)

    # Its descriptor was closed through another object.
    def stolen
      IO.for_fd(duplicate(reader, HIGH)).tap do |io|
        io.autoclose = false
        IO.for_fd(io.fileno).close
      end
    end

    def own_io = track(OwnIO.for_fd(duplicate(reader("text"), 3)))

    # @return [Integer] a descriptor of at least this number
    def duplicate(io, number)
      return io.fcntl(Fcntl::F_DUPFD, number) unless Platform::WINDOWS

      below = [io.dup]
      below << io.dup while below.last.fileno < number
      below.pop.tap { |copy| copy.autoclose = false }.fileno.tap { below.each(&:close) }
    end

    aside :pipe, :reader, :ended, :broken, :full, :pair, :socket, :listener, :udp, :file, :null, :terminal, :stolen, :own_io

    def delegate(object) = SimpleDelegator.new(object)

    def freed = IO::Buffer.new(16).tap(&:free)

    def slice_of_freed = IO::Buffer.new(16).then { |buffer| buffer.slice(2, 4).tap { buffer.free } }

    def slice = (@whole = IO::Buffer.new(16)).slice(2, 4)

    def empty_buffer = IO::Buffer.new(0)

    # An object whose method +name+ is the block.
    def acting(*names, &action)
      Object.new.tap { |object| names.each { |name| object.define_singleton_method(name) { |*| action.call } } }
    end

    def acting_integer_like(&action) = acting(:to_int, :to_i, :coerce, :divmod, :to_f, :<, :>, :zero?, :-, :*, :negative?, &action)

    def everything(&action) = Everything.new(&action)

    # The fiber of another thread. It is made without a wait of this fiber, because a call that waits may count as parked.
    def foreign_fiber = Fiber.blocking { Thread.new { Fiber.new { nil } }.value }

    def dead_fiber = Fiber.new(blocking: true) { nil }.tap(&:resume)

    def dead_thread = Fiber.blocking { Thread.new { nil }.tap(&:join) }

    def fresh
      backend = s.backend
      Thread.new do
        Thread.current.report_on_exception = false
        Fiber.set_scheduler(scheduler = Reactor::Scheduler.new(backend: backend))
        Fiber.schedule { yield scheduler }
      end.value.class
    end

    def closed_scheduler = @closed_scheduler ||= Reactor::Scheduler.new(backend: s.backend).tap(&:close)

    def unborn_scheduler = s.class.allocate

    def poller = @poller ||= Reactor::Poller.new(s.backend)

    def selector = @selector ||= Reactor::AsyncSelector.new(Fiber.current)
  end

  # What came of the last call.
  module Outcome
    # Errors that no call may end with: the library took an argument for something else, or panicked.
    WRONG = /\A(?:NoMethodError|NameError|LocalJumpError|SystemStackError|NoMemoryError|fatal|ZeroDivisionError)\z/
    # Mistakes of an object that was passed, or of the call itself. Ruby's own sleep multiplies the fraction that divmod gave,
    # whatever that is.
    OF_THE_CALL = /undefined method [`'](?:call|write|read|\*)' for|(?:for an instance of|for #<) ?BasicObject|no block given \(yield\)/

    class << self
      # @return [String, nil] an error that the library is to blame for
      attr_reader :wrong

      # @return [String]
      def of
        @wrong = nil
        yield
        "returned"
      rescue Over
        "parked"
      rescue Exception => e # rubocop:disable Lint/RescueException
        text = "raised #{e.class} at #{Array(e.backtrace).first} by #{e.message[0, 80].inspect}"
        @wrong = text if e.class.name.to_s.match?(WRONG) && text.match?(%r{lib/reactor|fatal}) && !text.match?(OF_THE_CALL)
        "raised #{e.class}"
      end
    end
  end

  module_function

  # One call alone, as bin/check wild prints it.
  def call(text)
    require_relative "conductor"
    Dir.mktmpdir do |directory|
      Dir.chdir(directory) { puts Conductor.alone { |conductor| conductor.call(text) } }
    end
  end
end

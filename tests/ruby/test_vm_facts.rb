# frozen_string_literal: true

require_relative "helper"

# Code that depends on the name of a hook's caller or on a text of the VM (ext/reactor/src/ruby/caller.rs, lib/reactor/vm.rb):
# each test asks the VM whether it still behaves that way. If one fails on a new Ruby, change the constant it names.
class TestVMFacts < ReactorTest
  SOURCE = File.read(File.join(ROOT, "ext/reactor/src/ruby/caller.rs"))
  VM = Reactor.const_get(:VM)

  # The strings of a constant of caller.rs.
  def self.strings(constant)
    text = SOURCE[/^(?:pub )?(?:const|static) #{constant}: .*?;$/m] or raise "caller.rs has no #{constant}"
    text.scan(/"([^"]+)"/).flatten
  end

  WAITING = strings("WAITING").each_slice(2).map(&:last)

  # A scheduler that records which method called each hook. Nothing is ever ready.
  class Witness
    attr_reader :callers

    def initialize = @callers = []
    def io_read(*) = note(:io_read, -Errno::EAGAIN::Errno)
    def io_write(*) = note(:io_write, -Errno::EAGAIN::Errno)
    def io_wait(*) = note(:io_wait, false)
    def block(*) = raise("nothing to wait for")
    def kernel_sleep(*) = raise("nothing to wait for")
    def unblock(*) = nil
    def fiber_interrupt(*) = nil
    def close = nil
    def fiber(&block) = Fiber.new(blocking: false, &block).tap(&:resume)

    private

    def note(hook, answer)
      @callers << [hook, caller_locations(2, 1).first.base_label]
      answer
    end
  end

  # @return [Array] the callers of the hooks, and the error of the block
  def witness(&block)
    Thread.new do
      error = nil
      Fiber.set_scheduler(scheduler = Witness.new)
      Fiber.schedule do
        block.call
      rescue SystemCallError, IOError => error
        nil
      end
      Fiber.set_scheduler(nil)
      [scheduler.callers, error]
    end.value
  end

  def with_pipe
    reader, writer = IO.pipe
    yield reader, writer
  ensure
    reader&.close
    writer&.close
  end

  # Yields a thread that is asleep.
  def with_sleeper(body, waker)
    thread = Thread.new(&body)
    Thread.pass until thread.stop?
    yield thread
  ensure
    waker.call(thread)
    thread.join
  end

  def test_the_end_of_inspect_tells_that_a_thread_waits_for_another
    queue = Queue.new
    with_sleeper(-> { queue.pop }, ->(_) { queue << 1 }) do |thread|
      assert thread.inspect.end_with?(VM::SLEEPS_FOREVER), "SLEEPS_FOREVER: #{thread.inspect}"
    end
    with_sleeper(-> { sleep(3600) }, :wakeup.to_proc) do |thread|
      refute thread.inspect.end_with?(VM::SLEEPS_FOREVER), "SLEEPS_FOREVER: #{thread.inspect}"
    end
  end

  def test_the_innermost_frame_tells_that_a_thread_waits_for_a_ractor
    script = <<~RUBY
      Warning[:experimental] = false
      ractor = Ractor.new { Ractor.receive }
      thread = Thread.new { ractor.respond_to?(:take) ? ractor.take : ractor.value }
      Thread.pass until thread.stop? && thread.backtrace_locations.size > 1
      frame = thread.backtrace_locations(0, 1).first
      puts frame.path, frame.label
      ractor.send(nil)
      thread.join
    RUBY
    path, label = IO.popen([RbConfig.ruby, "-e", script], &:readlines).map(&:chomp)
    assert path == VM::RACTOR_PATH || VM::RACTOR_LABEL.match?(label), "RACTOR_PATH, RACTOR_LABEL: #{path} #{label}"
  end

  def test_a_named_method_is_there_and_the_vms_own
    %w[CALLERS_AFTER_EAGAIN WAITING CLOSING CONDITION_WAITS COPYING].each do |constant|
      self.class.strings(constant).each_slice(2) do |owner, name|
        next if owner.start_with?("OpenSSL") # a library of its own, which not every Ruby has

        owner = Object.const_get(owner)
        method = name == "copy_stream" ? owner.singleton_method(name) : owner.instance_method(name)
        path = method.source_location&.first
        assert path.nil? || path.start_with?("<internal:"), "#{constant}: #{owner}##{name} is in #{path}"
        assert_includes [owner, owner.singleton_class], method.owner, "#{constant}: #{owner}##{name} is another class's"
      end
    end
  end

  # IO methods written in C that WAITING need not list: they wait for no bytes of a pipe, write by `write`, flush, or have their
  # own hooks.
  UNLISTED = %w[<< advise autoclose= autoclose? binmode binmode? close close_on_exec= close_on_exec? close_read close_write closed?
                external_encoding fcntl fdatasync fileno fsync inspect internal_encoding ioctl isatty lineno lineno= path
                pid pos pos= pread print printf putc puts pwrite reopen rewind seek set_encoding set_encoding_by_bom stat sync sync=
                sysseek tell
                timeout timeout= to_i to_io to_path tty? ungetbyte ungetc wait wait_priority wait_readable wait_writable].freeze

  def test_ruby_has_no_method_of_io_that_nobody_has_judged
    native = IO.instance_methods(false).map(&:to_s).select { |name| IO.instance_method(name).source_location.nil? }
    # io/console, io/nonblock, io/wait and the like add methods that plain Ruby does not have.
    plain = IO.popen([RbConfig.ruby, "--disable-gems", "-e", "puts IO.instance_methods(false)"], &:readlines).map(&:chomp)
    assert_empty (native & plain) - WAITING - UNLISTED, "WAITING: do these wait for a pipe? Then name them there, else in UNLISTED"
  end

  def test_printing_methods_write_by_write
    calls = { "print" => ["x"], "puts" => ["x"], "<<" => ["x"], "printf" => ["x"], "putc" => ["x"] }
    calls.each do |name, arguments|
      callers, = with_pipe { |_, writer| witness { writer.tap { _1.sync = true }.public_send(name, *arguments) } }
      assert_equal [:io_write, "write"], callers.first, name
    end
  end

  def reading_calls
    WAITING.to_h { |name| [name, %w[readpartial sysread].include?(name) ? [1] : []] }.except("write", "syswrite", "flush")
  end

  def test_methods_that_wait_for_a_pipe_call_the_hook_themselves
    reading_calls.each do |name, arguments|
      callers, = with_pipe { |reader, _| witness { reader.public_send(name, *arguments, &(-> { nil } if name.start_with?("each"))) } }
      assert_equal [:io_read, name], callers.first, "WAITING: #{name}"
    end
    %w[write syswrite].each do |name|
      callers, = with_pipe { |_, writer| witness { writer.public_send(name, "x") } }
      assert_equal [:io_write, name], callers.first, "WAITING: #{name}"
    end
  end

  def test_methods_of_sockets_call_io_wait_themselves
    pair = UNIXSocket.pair
    server = TCPServer.new("127.0.0.1", 0)
    udp = UDPSocket.new.tap { |socket| socket.bind("127.0.0.1", 0) }
    calls = [[pair.first, "recv", 1], [pair.first, "recvfrom", 1], [udp, "recvfrom", 1], [server, "accept"], [server, "sysaccept"]]
    calls.each do |socket, name, *arguments|
      callers, = witness { socket.public_send(name, *arguments) }
      assert_equal [:io_wait, name], callers.first, "CALLERS_AFTER_EAGAIN: #{socket.class}##{name}"
    end
  ensure
    [*pair, server, udp].each(&:close)
  end

  def test_only_sysread_and_syswrite_raise_eagain_instead_of_waiting
    calls = { "sysread" => [:first, 1], "syswrite" => [:last, "x"], "readpartial" => [:first, 1], "write" => [:last, "x"] }
    calls.each do |name, (place, argument)|
      callers, error = with_pipe { |*ends| witness { ends.public_send(place).public_send(name, argument) } }
      assert_equal %w[sysread syswrite].include?(name), callers.none? { |hook,| hook == :io_wait }, "WAITING: #{name} #{error.inspect}"
    end
  end

  # Not needed from Ruby 3.4 on, where the VM itself raises the right exception.
  def test_the_false_of_io_wait_is_a_timeout_from_ruby_3_4_on
    [["gets"], ["readpartial", 1]].each do |name, *arguments|
      _, error = with_pipe { |reader, _| witness { reader.public_send(name, *arguments) } }
      assert_equal RUBY_VERSION >= "3.4", IO::TimeoutError === error, "WAITING: #{name} raises #{error.inspect}"
    end
  end

  def test_the_description_of_a_buffer_tells_a_slice
    buffer = IO::Buffer.new(16)
    assert_includes buffer.slice(0, 4).to_s, "SLICE"
    refute_includes buffer.to_s, "SLICE"
  end
end

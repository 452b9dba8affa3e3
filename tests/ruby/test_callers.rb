# frozen_string_literal: true

require_relative "helper"

# A hook is not told which method called it, so the extension looks at the caller (ext/reactor/src/ruby/caller.rs). Each method of
# IO that reaches a hook, called in each way there is in Ruby, on each kind of descriptor: it waits where it waits in a thread
# without a scheduler, and its outcome is the same.
class TestCallers < ReactorTest
  READS = {
    readpartial: [1], read: [1], gets: [], getc: [], getbyte: [], readchar: [], readbyte: [], readline: [], readlines: [],
    each_line: [], each_char: [], each_byte: [], each_codepoint: [], eof?: [], sysread: [1], read_nonblock: [1],
    wait_readable: [60], recv: [1], recv_nonblock: [1]
  }.freeze
  WRITES = { write: ["x"], print: ["x"], "<<": ["x"], syswrite: ["x"], write_nonblock: ["x"], wait_writable: [60] }.freeze

  # Ways to call a method. Each must do what the method does.
  FORMS = {
    "directly" => ->(io, name, arguments, &block) { io.__send__(name, *arguments, &block) },
    "by public_send" => ->(io, name, arguments, &block) { io.public_send(name, *arguments, &block) },
    "unbound" => ->(io, name, arguments, &block) { io.method(name).owner.instance_method(name).bind_call(io, *arguments, &block) },
    "unbound, of IO" => lambda do |io, name, arguments, &block|
      owner = IO.method_defined?(name) ? IO : io.method(name).owner
      owner.instance_method(name).bind_call(io, *arguments, &block)
    end,
    "by a Method" => ->(io, name, arguments, &block) { io.method(name).to_proc.call(*arguments, &block) },
    "by an alias" => lambda do |io, name, arguments, &block|
      io.singleton_class.alias_method(:another_name, name)
      io.another_name(*arguments, &block)
    end,
    "copied" => lambda do |io, name, arguments, &block|
      io.singleton_class.define_method(:copy, io.method(name).unbind)
      io.copy(*arguments, &block)
    end,
    "by an override" => lambda do |io, name, arguments, &block|
      io.singleton_class.class_eval("def #{name}(...) = super", __FILE__, __LINE__)
      io.__send__(name, *arguments, &block)
    end,
    "by method_missing" => lambda do |io, name, arguments, &block|
      Class.new(BasicObject) do
        define_method(:method_missing) { |missing, *given, &own| io.__send__(missing, *given, &own) }
        def respond_to_missing?(*) = true
      end.new.__send__(:method_missing, name, *arguments, &block)
    end,
    # Ruby's methods that wait, and ours, as names of a program's methods
    **%i[read sysread syswrite readpartial gets close wait sleep io_read io_write io_wait].to_h do |label|
      holder = Object.new
      holder.define_singleton_method(:call_in) { |&call| call.call }
      holder.singleton_class.class_eval("def #{label}(io, name, arguments, &block) = io.__send__(name, *arguments, &block)", __FILE__, __LINE__)
      ["in a method named #{label}", ->(io, name, arguments, &block) { holder.__send__(label, io, name, arguments, &block) }]
    end
  }.freeze

  KINDS = {
    pipe: -> { IO.pipe },
    socket: -> { UNIXSocket.pair },
    "socket of IO": -> { UNIXSocket.pair.map { |socket| IO.for_fd(socket.tap { _1.autoclose = false }.fileno, "r+") } }
  }.freeze

  def setup
    super
    skip "sockets are not IO objects of their own class on Windows" if windows?
  end

  def test_a_read_waits_where_it_waits_without_a_scheduler
    compare(READS) do |kind|
      reader, writer = KINDS.fetch(kind).call.each { |io| track(io) }
      [reader, -> { writer.write("x\n"); writer.close }]
    end
  end

  def test_a_write_waits_where_it_waits_without_a_scheduler
    compare(WRITES) do |kind|
      reader, writer = KINDS.fetch(kind).call.each { |io| track(io) }
      buffered = writer.tap { |io| io.sync = true }
      nil until buffered.write_nonblock("-" * 4096, exception: false) == :wait_writable
      nil until buffered.write_nonblock("-", exception: false) == :wait_writable
      [writer, -> { reader.read_nonblock(1 << 20) }]
    end
  end

  # IO::Buffer reads and writes a minimum of bytes. With 0 it makes one attempt.
  def test_a_buffer_makes_one_attempt_if_it_need_not_transfer_anything
    KINDS.each do |kind, make|
      outcomes = [:run_plain, :in_fiber].map do |mode|
        reader, writer = make.call.each { |io| track(io) }
        nil until writer.write_nonblock("-" * 4096, exception: false) == :wait_writable
        other, = make.call.each { |io| track(io) }
        send(mode) { [IO::Buffer.new(1).read(other, 0), IO::Buffer.for("x" * 4096) { |buffer| buffer.write(writer, 0) }].tap { reader } }
      end
      assert_equal(*outcomes, kind)
    end
  end

  # Ways in which a program's scheduler comes from its override of a hook to the hook.
  OVERRIDES = {
    "super" => ->(hook) { "def #{hook}(...) = super" },
    "a block of a method" => ->(hook) { "def #{hook}(...) = traced { super }" },
    "a block of Ruby's method" => ->(hook) { "def #{hook}(...) = 1.then { super }" },
    "define_method" => ->(hook) { "define_method(:#{hook}) { |*arguments| traced { super(*arguments) } }" },
    "an alias" => ->(hook) { "alias_method :own_#{hook}, :#{hook}; def #{hook}(...) = traced { own_#{hook}(...) }" },
    "many modules" => ->(hook) { "20.times { prepend(Module.new { def #{hook}(...) = super }) }" }
  }.freeze

  def test_a_read_through_an_override_waits_where_it_waits_without_one
    outcomes = {}
    each_overriding(:io_read, :io_wait) do |name|
      reader, writer = IO.pipe
      Fiber.schedule { sleep 0; writer << "late" }
      outcomes[name] = [reader.sysread(9), outcome { reader.read_nonblock(1) }.last]
    end
    assert_equal OVERRIDES.transform_values { ["late", IO::EAGAINWaitReadable] }, outcomes
  end

  def test_an_exception_ends_no_wait_for_the_lock_of_a_condition_through_an_override
    owned = {}
    each_overriding(:block, :kernel_sleep) do |name|
      mutex, changed, taken, ended = Thread::Mutex.new, Thread::ConditionVariable.new, Thread::Queue.new, Thread::Queue.new
      mutex.synchronize do
        waiting = Fiber.current
        Thread.new { mutex.synchronize { taken << true; ended.pop } }
        Fiber.schedule do
          taken.pop
          [IndexError, KeyError].each { |error| Fiber.scheduler.fiber_interrupt(waiting, error.new); sleep 0 } # the second while it locks
          ended << true
        end
        changed.wait(mutex)
      rescue IndexError
        owned[name] = mutex.owned?
      end
      sleep 0
    rescue KeyError, ThreadError
      nil
    end
    assert_equal OVERRIDES.transform_values { true }, owned
  end

  private

  # Compares each method and form in a thread without a scheduler and in a fiber. The block makes an object whose method waits, and
  # what ends its wait.
  def compare(methods, &)
    wrong = run_scheduler_for(methods, &)
    assert_empty wrong, wrong.join("\n")
  end

  def run_scheduler_for(methods)
    cells = KINDS.keys.product(methods.keys, FORMS.keys)
    plain = cells.map { |cell| in_thread(*cell, methods, *yield(cell.first)) }
    [false, true].flat_map do |overrides|
      own = in_fiber do |scheduler|
        override_hooks(scheduler) if overrides
        cells.map { |cell| in_own_fiber(*cell, methods, *yield(cell.first)) }
      end
      rows = cells.zip(plain, own).reject { |cell, *both| both.uniq.one? || (unknown?(cell) && both.last == [:returns, :raised, Errno::EAGAIN]) }
      rows.map { |cell, *both| "#{cell.join(" ")}: plain #{both[0]}, in a fiber #{both[1]}#{" with overrides" if overrides}" }
    end
  end

  # A copy of a method is another class's, and so not known. The VM leaves it to the hook whether these two wait.
  def unknown?((_, name, form)) = form == "copied" && %i[sysread syswrite].include?(name)

  def override_hooks(scheduler)
    %w[io_read io_write io_wait block kernel_sleep].each { |hook| scheduler.singleton_class.class_eval("def #{hook}(...) = super", __FILE__, __LINE__) }
  end

  def call(io, name, form, methods)
    values = []
    block = ->(item) { values << item } if name.start_with?("each")
    value = FORMS.fetch(form).call(io, name, methods.fetch(name), &block)
    [:value, value.equal?(io) ? :itself : value, values]
  rescue IOError, SystemCallError => error
    [:raised, error.class]
  rescue NameError # only sockets have the method
    [:raised, NoMethodError]
  end

  # Whether a thread waits cannot be seen from outside: only what does not wait ends before its wait could.
  def in_thread(_, name, form, methods, io, finish)
    waits = !name.end_with?("_nonblock")
    thread = Thread.new { call(io, name, form, methods) }
    finish.call if waits
    join_or_fail(thread, TEST_TIMEOUT)
    [waits && thread.value != [:raised, NoMethodError] ? :waits : :returns, *thread.value]
  end

  def in_own_fiber(_, name, form, methods, io, finish)
    outcome = nil
    fiber = Fiber.schedule { outcome = call(io, name, form, methods) }
    state = -> { Fiber.scheduler.fibers.find { |status| status.fiber.equal?(fiber) }&.state }
    sleep 0 while fiber.alive? && state.call == :ready # its time slice was over
    waits = fiber.alive?
    finish.call if waits
    limit = clock + 10
    sleep 0 while fiber.alive? && clock < limit
    fiber.kill
    [waits ? :waits : :returns, *(outcome || [:hangs])]
  end

  def each_overriding(*hooks)
    OVERRIDES.each do |name, code|
      overriding = Class.new(Reactor::Scheduler) { def traced = yield }
      hooks.each { |hook| overriding.class_eval(code.call(hook), __FILE__, __LINE__) }
      Thread.new do
        Fiber.set_scheduler(overriding.new)
        Fiber.schedule { yield name }
      end.join
    end
  end
end

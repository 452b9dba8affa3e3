# frozen_string_literal: true

require "stringio"
require "zlib"

module Fuzz
  # What plain threads have no word for: jobs, groups, and schedulers that end. And files with known bytes.
  module Places
    # As Reactor.offload: a job sees a copy of its caller's storage, and nothing else of it or of other jobs.
    def offload(&block)
      return Reactor.offload(&block) if @backend

      done = false
      value = nil
      Thread.new { value = yield; done = true }.join
      done ? value : raise(ThreadError)
    end

    def group(**options, &block)
      @backend ? Reactor.group(**options, &block) : Group.new(self, **options).run(&block)
    end

    # One more caller of a group: returns when it sleeps, or has ended.
    def beside
      caller = over = nil
      start do
        caller = [Thread.current, Fiber.current]
        yield
      ensure
        over = true
      end
      sleep Stage::POLL until over || (caller && asleep?(*caller))
    end

    # Runs the block under a scheduler of its own, which ends in this place. On threads it is only the place.
    def ended_in(place, &work)
      Thread.new do
        case place
        when :root then own_run(&work)
        when :fiber then Fiber.new { own_run(&work) }.resume
        when :enumerator then Enumerator.new { |yielder| yielder << own_run(&work) }.next
        when :fork then ended_in_child(&work)
        end
      end.value
    end

    def bytes(size) = ("0123456789abcdefghijklmn\n" * (size / 25 + 1)).byteslice(0, size)

    # Not through {own}: what is written to it stays in Ruby's buffer.
    def file(size)
      name = path
      File.binwrite(name, bytes(size))
      File.open(name, "r+b").tap { |file| @ios << file }
    end

    def filled(size, reader, writer)
      own(reader, writer)
      thread { writer.write(bytes(size)); writer.close }.then { reader }
    end

    # @return [Array(IO, #call)] a target, and what tells what has arrived there
    def drained(reader, writer)
      own(reader)
      @ios << writer
      all = thread { reader.read }
      [writer, -> { writer.close; all.value }]
    end

    private

    def own_run(&work) = @backend ? Reactor.run(backend: @backend, &work) : yield

    # The child is forked inside of the run, which then ends in both processes.
    #
    # @return [Array] the run's value, the same in the child, and the child's exit status
    def ended_in_child
      parent = Process.pid
      reader, writer = IO.pipe
      pid = nil
      value = own_run { yield.tap { pid = Process.fork } }
      return [value, reader.tap { writer.close }.read, Process.wait2(pid).last.exitstatus] if Process.pid == parent

      writer.write(Fuzz.text(value))
      Process.exit!(0)
    ensure
      Process.exit!(1) unless Process.pid == parent
      [reader, writer].each { |io| io.close unless io.closed? }
    end
  end
end

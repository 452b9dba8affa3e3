# frozen_string_literal: true

require "stringio"
require "zlib"

module Fuzz
  # What plain threads have no word for: jobs, and schedulers that end. And files with known bytes.
  module Places
    # As Reactor.offload: a job sees a copy of its caller's storage, and nothing else of it. Of other jobs it sees thread variables.
    def offload(&block)
      return Reactor.offload(&block) if @backend

      done = false
      value = nil
      Thread.new { Thread.current.report_on_exception = false; value = yield; done = true }.join
      done ? value : raise(ThreadError)
    end

    # Runs the block under a scheduler of its own, which ends in this place. On threads it is only the place.
    def ended_in(place, &work)
      Thread.new do
        case place
        when :root then own_run(&work)
        when :fiber then Fiber.new { own_run(&work) }.resume
        when :enumerator then Enumerator.new { |yielder| yielder << own_run(&work) }.next
        when :fork then own_run { in_child { own_run(&work) } }
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
      writer.write(bytes([size, 9000].min)) # less than a pipe holds
      writer.close
      reader
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

    # @return [Array] what the block returns in a forked child, as text, and the child's exit status
    def in_child
      reader, writer = IO.pipe
      pid = Process.fork do
        writer.write(Fuzz.text(yield))
        Process.exit!(0)
      ensure
        Process.exit!(1)
      end
      writer.close
      [reader.read, Process.wait2(pid).last.exitstatus]
    ensure
      [reader, writer].each { |io| io.close unless io.closed? }
    end
  end
end

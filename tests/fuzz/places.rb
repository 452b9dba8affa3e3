# frozen_string_literal: true

require "stringio"
require "zlib"

module Fuzz
  # Jobs, which plain threads have no word for, and files with known bytes.
  module Places
    # As Reactor.offload: a job sees a copy of its caller's storage, and nothing else of it. Of other jobs it sees thread variables.
    def offload(&block)
      return Reactor.offload(&block) if @backend

      done = false
      value = nil
      Thread.new { Thread.current.report_on_exception = false; value = yield; done = true }.join
      done ? value : raise(ThreadError)
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
  end
end

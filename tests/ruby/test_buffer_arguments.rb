# frozen_string_literal: true

require_relative "helper"
require "tempfile"

# IO::Buffer#read, #write, #pread and #pwrite: what they accept, and what a buffer in use allows, as in plain Ruby.
class TestBufferArguments < ReactorTest
  SIZE = 8
  INPUT = "0123456789abcdef" * 4
  LENGTHS = [nil, 0, 3, SIZE + 1, -1, 2**62, 2**64, "1"].freeze
  OFFSETS = [nil, 2, SIZE, SIZE + 1, -1, 2**62, "1"].freeze

  BUFFERS = {
    plain: -> { IO::Buffer.new(SIZE) },
    readonly: -> { IO::Buffer.for(("a".."h").to_a.join.freeze) },
    frozen: -> { IO::Buffer.new(SIZE).freeze },
    freed: -> { IO::Buffer.new(SIZE).tap(&:free) },
    slice: -> { IO::Buffer.new(SIZE * 2).slice(4, SIZE) },
    slice_of_a_freed_buffer: -> { IO::Buffer.new(SIZE * 2).then { |whole| whole.slice(4, SIZE).tap { whole.free } } }
  }.freeze

  # The IO that is used comes first.
  IOS = {
    file: -> { [Tempfile.create("buffer").tap { |file| file.write(INPUT).then { file.rewind } }] },
    file_for_reading: -> { [File.open(__FILE__)] },
    reader: -> { IO.pipe.each { |io| io.sync = true }.tap { |_, writer| writer << INPUT } },
    writer: -> { IO.pipe.reverse },
    socket: -> { UNIXSocket.pair.tap { |_, peer| peer << INPUT } },
    end_of_file: -> { [IO.pipe.tap { |_, writer| writer.close }.first] },
    closed: -> { [IO.pipe.each(&:close).first] },
    number: -> { [3] },
    nothing: -> { [nil] }
  }.freeze
  private_constant :SIZE, :INPUT, :LENGTHS, :OFFSETS, :BUFFERS, :IOS

  # {[IO, buffer, length, offset] => the outcome and the buffer's contents afterwards}
  def table(method, positions = [[]])
    # With a scheduler, Ruby 4.0 checks whether the IO is closed before it calls the hook; without one, afterwards.
    ios = IOS.keys - (RUBY_VERSION >= "4.0" ? [:closed] : [])
    ios.product(BUFFERS.keys, LENGTHS, OFFSETS, positions).to_h do |row|
      [row, outcome_of(method, *row)]
    end
  end

  def outcome_of(method, io, buffer, length, offset, position)
    ios = IOS.fetch(io).call
    made = quietly { BUFFERS.fetch(buffer).call }
    numbers = CONTRACT == 4 ? [offset, length] : [length, offset]
    outcome = outcome { made.public_send(method, ios.first, *position, *numbers) }
    [outcome, outcome.first == :value && !made.null? ? outcome { made.get_string } : nil]
  ensure
    ios&.grep(IO)&.each { |each| each.close unless each.closed? }
    File.unlink(ios.first.path) if io == :file # Windows unlinks no open file
  end

  { read: [[]], write: [[]], pread: [[1], [-1]], pwrite: [[1], [-1]] }.each do |method, positions|
    define_method(:"test_the_arguments_of_#{method}_are_checked_as_in_plain_ruby") do
      plain = run_plain { table(method, positions) }
      found = run_scheduler { Fiber.new(blocking: false) { table(method, positions) }.resume }
      different = plain.reject { |row, expected| found[row] == expected }
      assert_empty different.first(5).map { |row, expected| [row, expected, found[row]] }
    end
  end

  def test_a_buffer_cannot_be_freed_during_its_read
    reader, writer = pair
    run_scheduler do |scheduler|
      buffer = buffer_of(SIZE)
      count = nil
      Fiber.schedule { count = buffer.read(reader, SIZE) }
      seen = [outcome { buffer.free }, outcome { buffer.resize(SIZE * 2) }, outcome { buffer.locked { flunk } }]
      assert_equal [[:raised, IO::Buffer::LockedError]] * 3, seen
      writer << "x" * SIZE
      scheduler.run
      assert_equal [SIZE, "x" * SIZE], [count, buffer.get_string]
      buffer.free
    end
  end

  # Two readers: the first to begin unlocks the buffer when it ends.
  def test_a_buffer_that_was_freed_during_its_read_is_an_error_and_no_end_of_file
    run_scheduler do |scheduler|
      buffer = buffer_of(SIZE)
      one, other = pair, pair
      outcomes = {}
      Fiber.schedule { outcomes[:one] = outcome { buffer.read(one.first, SIZE) } }
      Fiber.schedule { outcomes[:other] = outcome { buffer.read(other.first, SIZE) } }
      Fiber.schedule do
        until_parked(scheduler, 2)
        one.last << "x" * SIZE
        sleep 0 until outcomes[:one]
        buffer.free
        other.last << "x" * SIZE
      end
      scheduler.run
      assert_equal({ one: [:value, SIZE], other: [:raised, IO::Buffer::AllocationError] }, outcomes)
    end
  end
end

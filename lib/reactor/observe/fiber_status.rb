# frozen_string_literal: true

require_relative "fiber_name"

module Reactor
  FiberStatus = Data.define(:fiber, :state, :hook, :io, :events, :forever, :seconds, :backtrace)

  # What one fiber of a scheduler is doing at the moment it was looked at.
  #
  # @!attribute [r] fiber
  #   @return [Fiber]
  # @!attribute [r] state
  #   @return [Symbol] `:waiting` (parked), `:ready` (its wait is over, and it is in the ready queue), `:running` (it has control) or
  #     `:away` (other fibers run for it: an Enumerator that it has resumed, or, in {Lifecycle#run}, all)
  # @!attribute [r] hook
  #   @return [Symbol, nil] the hook it waits in: `:io`, `:sleep`, `:block` (Mutex, Queue, Thread#join …) or `:other`; nil unless waiting
  # @!attribute [r] io
  #   @return [IO, nil] the object it waits for; nil if there is none, are several, or it is gone
  # @!attribute [r] events
  #   @return [Integer] IO::READABLE, IO::WRITABLE, IO::PRIORITY or several of them; 0 if it waits for no single IO
  # @!attribute [r] forever
  #   @return [Boolean] whether it waits without a time limit until another fiber or thread wakes it
  # @!attribute [r] seconds
  #   @return [Float, nil] how long it has been in this state, counted from the turn of the loop in which that began; nil unless waiting
  #     or ready
  # @!attribute [r] backtrace
  #   @return [Array<String>] where it stands, as Fiber#backtrace, without the frames of this library
  class FiberStatus
    # One fiber as the scheduler's `fiber_rows` tells it: what {FiberStatus} has, a number that is the fiber's own while it lives
    # (key), and the IO object as itself or by its number (io).
    #
    # @api private
    Row = Struct.new(:fiber, :key, :state, :hook, :io, :events, :forever, :seconds)

    # The folders and files of this library whose frames are left out. Patches are not among them, because they stand for methods of
    # Ruby's, and neither are the classes that a program calls: {Group}, {Server}.
    OWN_PLACES = %w[native/ portable/ scheduler/ workers/ connect/ observe/ child_events.rb hooks_in_forked_child.rb transfer_loop.rb].freeze
    OWN_FRAMES = Ractor.make_shareable(OWN_PLACES.map { |place| "#{File.dirname(__dir__)}/#{place}" })
    # A frame that begins so is not the place of a fiber, because it is not the program's.
    NO_PLACES = Ractor.make_shareable(["<internal:", "#{File.dirname(__dir__)}/"])
    # Frames that {place} looks at. The portable scheduler has the most of its own above those of the program.
    DEEPEST_PLACE = 32
    # The frame of a native hook has the path and the line of the method that has called it. Ruby 3.3 does not name the class.
    HOOK_LABELS = Ractor.make_shareable(
      %w[kernel_sleep block io_wait io_read io_write io_pread io_pwrite io_close timeout_after blocking_operation_wait yield fiber]
        .flat_map { |hook| [":in `#{hook}'", ":in 'Reactor::NativeScheduler##{hook}'"] }
    )
    # Events in words, by their number.
    WANTED = Array.new(8) do |events|
      names = { IO::READABLE => "readable", IO::WRITABLE => "writable", IO::PRIORITY => "exceptional" }
      names.filter_map { |event, name| name if events.anybits?(event) }.join(" or ").freeze
    end.freeze
    private_constant :OWN_PLACES, :OWN_FRAMES, :NO_PLACES, :DEEPEST_PLACE, :HOOK_LABELS, :WANTED

    class << self
      # @param scheduler [Lifecycle]
      # @param limit [Integer, nil] how many at most: those that have waited longest; nil: all
      # @return [Array<Row>] every fiber the scheduler knows
      # @api private
      def rows(scheduler, limit = nil) = scheduler.fiber_rows(*limit).map { |values| Row.new(*values) }

      # @param fiber [Fiber]
      # @param is_running [Boolean] whether it has control
      # @return [String, nil] the program's line that it stands at; that of the library's method if it runs nothing else
      # @api private
      def place(fiber, is_running: false)
        # A fiber without control stands in a hook. If that is a native one, the place is the frame before it.
        line = fiber.backtrace(1, 1)&.first unless is_running
        return line unless line.nil? || line.start_with?(*NO_PLACES)

        frames = without_own_frames(fiber.backtrace(0, DEEPEST_PLACE) || [])
        frames.find { |frame| !frame.start_with?(*NO_PLACES) } || frames.find { |frame| !frame.start_with?("<internal:") }
      end

      # @param scheduler [Lifecycle]
      # @return [Array<FiberStatus>] of every fiber the scheduler knows
      # @api private
      def of(scheduler)
        rows = rows(scheduler)
        numbers = numbered_ios if rows.any? { |row| row.io.is_a?(Integer) && row.io.positive? }
        rows.map do |row|
          io = row.io.is_a?(Integer) ? numbers&.[](row.io) : row.io
          hook = row.hook if row.state == :waiting
          state = row.state == :running && !row.fiber.equal?(scheduler.running_fiber) ? :away : row.state
          new(row.fiber, state, hook, io, row.events, row.forever, row.seconds, backtrace(row.fiber))
        end
      end

      # @return [Hash{Integer => IO}] IO objects by the number under which the native scheduler knows them
      # @api private
      def numbered_ios
        ObjectSpace.each_object(IO).filter_map { |io| (number = Internal.io_number(io)) && [number, io] }.to_h
      end

      # @param runner [Fiber, Thread]
      # @return [Array<String>] where it is, without the frames of this library
      # @api private
      def backtrace(runner) = without_own_frames(runner.backtrace || [])

      # @param events [Integer]
      # @return [String] the events in words
      # @api private
      def wanted(events) = WANTED[events & 7]

      private

      def without_own_frames(lines)
        lines.reject.with_index { |line, place| line.start_with?(*OWN_FRAMES) || hook_line?(line, lines[place + 1]) }
      end

      def hook_line?(line, caller)
        return false unless caller && line.end_with?(*HOOK_LABELS)

        label = HOOK_LABELS.find { |ending| line.end_with?(ending) }
        caller.start_with?(line.byteslice(0, line.bytesize - label.bytesize))
      end
    end

    # @return [String] one line, for example "waiting 0.512 s for #<TCPSocket:fd 7> to be readable"
    def summary
      [state, (format("%.3f s", seconds) if seconds), purpose].compact.join(" ")
    end

    # @return [String] the fiber, the summary, and the backtrace on lines of its own
    def to_s = ["#{FiberName.describe(fiber)} #{summary}", *backtrace].join("\n    ")

    private

    def purpose
      case hook
      when :io then io || !events.zero? ? "for #{io ? io.inspect : "an IO object"} to be #{FiberStatus.wanted(events)}" : "for several IO objects"
      when :sleep then forever ? "asleep until woken" : "asleep"
      when :block then forever ? "until it is unblocked" : "until it is unblocked or its time is over"
      end
    end
  end
end

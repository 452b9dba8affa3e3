# frozen_string_literal: true

require_relative "fiber_name"

module Reactor
  FiberStatus = Data.define(:fiber, :state, :hook, :io, :events, :forever, :seconds, :backtrace)

  # A snapshot of what one fiber of a scheduler is doing.
  #
  # @!attribute [r] fiber
  #   @return [Fiber]
  # @!attribute [r] state
  #   @return [Symbol] `:waiting` (parked), `:ready` (its wait has ended and it is in the ready queue), `:running` (it has
  #     control) or `:away` (it has resumed an Enumerator that runs or waits now, or is in {Lifecycle#run}, which runs all other
  #     fibers)
  # @!attribute [r] hook
  #   @return [Symbol, nil] the hook it waits in: `:io`, `:sleep`, `:block` (Mutex, Queue, Thread#join, a condition without a
  #     limit …) or `:other`; nil unless waiting
  # @!attribute [r] io
  #   @return [IO, nil] the object it waits for; nil if there is none or several, and in Ractors but the main one
  # @!attribute [r] events
  #   @return [Integer] IO::READABLE, IO::WRITABLE, IO::PRIORITY or several of them; 0 unless it waits for a single IO
  # @!attribute [r] forever
  #   @return [Boolean] whether it waits without a time limit for another fiber or thread to wake it
  # @!attribute [r] seconds
  #   @return [Float, nil] how long it has been in this state, measured from the turn of the loop in which the state began, or how
  #     long its Enumerator has been waiting; nil if it or the Enumerator runs
  # @!attribute [r] backtrace
  #   @return [Array<String>] as Fiber#backtrace, without the frames of this library's Ruby code. The first frame of a waiting
  #     fiber may be a native hook, shown with its caller's line.
  class FiberStatus
    # One fiber as reported by the scheduler's `fiber_rows`: the attributes of {FiberStatus}, a number that identifies the fiber
    # while it lives (key), and the number of the IO object (io), 0 for none or several.
    #
    # @api private
    Row = Struct.new(:fiber, :key, :state, :hook, :io, :events, :forever, :seconds)

    # The most frames that {place} searches.
    DEEPEST_PLACE = 32
    # Events in words, indexed by mask.
    WANTED = Array.new(8) do |events|
      names = { IO::READABLE => "readable", IO::WRITABLE => "writable", IO::PRIORITY => "exceptional" }
      names.filter_map { |event, name| name if events.anybits?(event) }.join(" or ").freeze
    end.freeze
    private_constant :DEEPEST_PLACE, :WANTED

    class << self
      # @param scheduler [Lifecycle]
      # @param limit [Integer, nil] maximum number of fibers, longest-waiting first; nil: no limit
      # @return [Array<Row>] every fiber the scheduler knows
      # @api private
      def rows(scheduler, limit = nil) = scheduler.fiber_rows(*limit).map { |values| Row.new(*values) }

      # @param fiber [Fiber]
      # @param is_running [Boolean] whether it has control
      # @return [String, nil] its innermost line in the program, or in this library if it runs no code of the program
      # @api private
      def place(fiber, is_running: false)
        # A fiber without control is in a hook, and its place is usually the frame that called the hook.
        top = is_running ? 0 : 1
        line = fiber.backtrace(top, 1)&.first
        return line unless line.nil? || line.start_with?("<internal:", FiberName::OWN)

        frames = (fiber.backtrace(top, DEEPEST_PLACE) || []).reject { |frame| frame.start_with?("<internal:") }
        frames.find { |frame| !frame.start_with?(FiberName::OWN) } || frames.first
      end

      # @param scheduler [Lifecycle]
      # @return [Array<FiberStatus>] of every fiber the scheduler knows
      # @api private
      def of(scheduler)
        rows = rows(scheduler).select { |row| row.fiber.alive? } # another thread may ask
        waiting = rows.filter_map { |row| row.fiber unless row.io.zero? }
        ios = waiting.empty? ? {} : objects(IO, waiting).to_h { |io| [Internal.io_number(io), io] }
        rows.map do |row|
          io = ios[row.io] unless row.io.zero?
          hook = row.hook if row.state == :waiting
          state = row.state == :running && !row.fiber.equal?(scheduler.running_fiber) ? :away : row.state
          new(row.fiber, state, hook, io, row.events, row.forever, row.seconds, backtrace(row.fiber))
        end
      end

      # @param runner [Fiber, Thread]
      # @return [Array<String>] without the frames of this library's Ruby code, unless there are no others
      # @api private
      def backtrace(runner)
        frames = runner.backtrace || []
        frames.reject { |frame| frame.start_with?(FiberName::OWN) }.then { |others| others.empty? ? frames : others }
      end

      # @param kind [Class]
      # @param fibers [Array<Fiber>]
      # @return [Array] the objects of this class, at least those in the frames of the fibers; none in Ractors but the main one
      # @api private
      def objects(kind, fibers)
        return ObjectSpace.each_object(kind).to_a if ObjectSpace.each_object(Thread).any?

        # There is or was a second Ractor, so each_object omits what cannot be shared. The frames take a search for each fiber.
        return [] unless Ractor.current.equal?(Ractor.main)

        require "objspace.so" unless ObjectSpace.respond_to?(:reachable_objects_from)
        fibers.flat_map { |fiber| ObjectSpace.reachable_objects_from(fiber).grep(kind) }.uniq
      rescue ThreadError
        [] # in a trap handler, `require` raises
      end

      # @param io [IO, #to_io]
      # @return [String] its `inspect`, or if that is the program's, which may raise or wait, its class and descriptor
      # @api private
      def shown(io)
        return Kernel.instance_method(:to_s).bind_call(io) unless IO === io

        file, = Kernel.instance_method(:method).bind_call(io, :inspect).source_location
        file.nil? || file.start_with?(FiberName::OWN) ? io.inspect : IO.instance_method(:inspect).bind_call(io)
      end

      # @param string [String] a path or a name in any encoding
      # @return [String] valid UTF-8, for JSON
      # @api private
      def text(string)
        return string if string.encoding == Encoding::UTF_8 && string.valid_encoding?

        string.encode(Encoding::UTF_8, invalid: :replace, undef: :replace).scrub
      end

      # @param events [Integer]
      # @return [String] the events in words
      # @api private
      def wanted(events) = WANTED[events & 7]
    end

    # @return [String] one line, for example "waiting 0.512 s for #<TCPSocket:fd 7> to be readable"
    def summary = [state, (format("%.3f s", seconds) if seconds), purpose].compact.join(" ")

    # @return [String] the fiber, the summary, and the backtrace on lines of its own
    def to_s = ["#{FiberName.describe(fiber)} #{summary}", *backtrace].join("\n    ")

    private

    def purpose
      case hook
      when :io then io || !events.zero? ? "for #{io ? FiberStatus.shown(io) : "an IO object"} to be #{FiberStatus.wanted(events)}" : "for several IO objects"
      when :sleep then forever ? "asleep until woken" : "asleep"
      when :block then forever ? "until it is unblocked" : "until it is unblocked or times out"
      end
    end
  end
end

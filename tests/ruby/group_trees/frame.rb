# frozen_string_literal: true

require "timeout"

# See group_trees.rb.
module GroupTrees
  # Raised by a task, by a block, or by an ensure clause.
  class Own < StandardError; end

  # The same, but no ordinary error.
  class Grave < Exception; end # rubocop:disable Lint/InheritException

  # Raised in a task's fiber from outside.
  class FromOutside < StandardError
    attr_reader :fiber

    def initialize(message, fiber)
      super(message)
      @fiber = fiber
    end
  end

  # Timeout.timeout around part of a fiber.
  class Expired < StandardError
    attr_accessor :frame
  end

  # A request to end a frame.
  Asked = Struct.new(:reasons, :time)

  # A block as seen by its own code, and what may end it. It knows nothing of the library but one object for each scope, the Cancelled
  # that is raised in it.
  class Frame
    attr_reader :kind, :outer, :node, :seen, :starter, :bound, :fiber, :depth
    # @return [Float, nil] when its limit elapses
    attr_writer :due
    attr_accessor :token, :deadline, :asked, :ends
    # Whether its end has been raised; whether what was raised is still on its way; whether its limit may have elapsed before it
    # was moved.
    attr_accessor :told, :flying
    attr_writer :vague
    # The error that a clause handles; whether that, or an error that it has replaced, is a Cancelled.
    attr_accessor :handles, :keeps
    # Whether nothing tells in which clause that error was raised: on Ruby 4.0, it has no cause from the fiber in which it is raised.
    attr_accessor :bare

    # @param kind [Symbol] :root, :group, :task, :deadline, :timeout, :shield, :enumerator, :ensure
    # @param starter [Frame] of the code that starts a task
    def initialize(kind, outer, node: outer&.node, seen: outer&.seen, starter: outer)
      @kind = kind
      @outer = outer
      @node = node
      @seen = seen
      @starter = starter
      @depth = outer ? outer.depth + 1 : 0
      @fiber = Fiber.current
      @ends = 0
    end

    # Runs the block of the frame.
    def run
      @fiber = Fiber.current
      yield self
    ensure
      @ends += 1
    end

    def chain = Enumerator.produce(self, &:outer).take_while(&:itself)

    # @return [Array<Frame>] those whose end is raised in this one's code: up to its task
    def around
      found = []
      frame = self
      while frame
        found << frame
        frame = %i[task root].include?(frame.kind) ? nil : frame.outer
      end
      found
    end

    # @return [Array<Frame>] those of them that no shield, and no clause of another ending, keeps from it. A shield keeps what is outside
    #   the fiber, too, if that fiber itself waits; then a timeout may come after what it keeps. An Enumerator in a clause does not know
    #   of it: $! is the fiber's.
    def exposed
      shields = []
      bare = waits_in_shield = false
      around.reject do |frame|
        held = waits_in_shield || (frame.kind != :timeout && shields.any? { |fiber| fiber.equal?(frame.fiber) })
        waits_in_shield ||= frame.kind == :shield && frame.fiber.equal?(@fiber)
        shields << frame.fiber if frame.kind == :shield || (frame.keeps && frame.fiber.equal?(@fiber) && !bare)
        bare ||= frame.bare
        held
      end
    end

    # Whether it must end at the next wait.
    def ending?(now) = !@told && !vague && (!@asked.nil? || (!due.nil? && due <= now))

    # Whether it must have ended.
    def overdue?(now) = !@told && !vague && ((!@asked.nil? && @asked.time < now) || (!due.nil? && due < now))

    def elapsed?(now) = vague || (!due.nil? && due <= now) || (!@due.nil? && @due <= now && elapsed_elsewhere?(now))

    # Whether the deadline around it may have been raised in another fiber, which may not have shown it yet.
    def elapsed_elsewhere?(now) = !@within.nil? && !@within.fiber.equal?(@fiber) && @within.elapsed?(now)

    # @return [Frame, nil] the deadline that its code inherits
    def inherited
      frame = self
      frame = frame.starter until frame.nil? || frame.kind == :shield || (frame.time && frame.ends.zero?)
      frame if frame&.time
    end

    # Sets the limit of a deadline: that of an earlier one around it ends both, and is raised there.
    def limit(seconds, now)
      @due = @time = now + seconds
      bound = @outer.inherited
      return unless bound && !bound.spent?

      first = bound.limiter
      @vague = first.vague || (!first.fiber.equal?(@fiber) && first.elapsed?(now)) # it may be just ending its group
      inside = chain.take_while { |frame| !frame.equal?(bound) }
      return (@within = bound).inside << self if inside.last.outer && inside.none? { |frame| frame.kind == :enumerator }
      return unless bound.time <= @time

      @bound = bound
      @due = @time = bound.time
    end

    # @return [Float, nil] the end of a deadline, even if only the end of the one around it
    def time = @within ? [@time, @within.time].min : @time

    # @return [Float, nil] when its limit elapses
    def due = (@due unless ends_with_outer?)

    def vague = @vague || @within&.vague

    def ends_with_outer? = !@within.nil? && @within.time <= @time

    # @return [Frame] the deadline whose end this one has
    def limiter = (@bound || (@within if ends_with_outer?))&.limiter || self

    # Deadlines that this one bounds.
    def inside = @inside ||= []

    # Its limit, and those inside, may have elapsed before it is moved.
    def may_be_late(now)
      @vague ||= !due.nil? && due <= now
      inside.each { |frame| frame.may_be_late(now) }
    end

    def move(seconds, now)
      return if spent?

      may_be_late(now)
      @bound = nil
      @due = @time = now + seconds
    end

    # Whether its end, or that of the earlier deadline, has been raised, so that it limits what its ensure clauses begin no more.
    def spent? = @told || (@within || @bound)&.spent?

    # Whether its code may wait forever: something will end it.
    def may_hang? = chain.none? { |frame| %i[shield ensure].include?(frame.kind) || (frame.told && frame.kind != :deadline) }
  end

  # A task as seen by its own code.
  class Seen
    attr_accessor :task, :frame, :outcome, :error, :explicit
    attr_reader :starter, :transient, :kept, :finish

    # @param kept [Boolean] whether an ordinary error stays in the task
    # @param finish [Float, nil] when its time limit elapses
    def initialize(starter, transient: false, kept: false, finish: nil)
      @starter = starter
      @transient = transient
      @kept = kept
      @finish = finish
    end

    def fiber = @frame&.fiber

    def runs? = !@frame.nil? && @outcome.nil?
  end

  # A group as seen by its block and its tasks.
  class Node
    attr_reader :limit, :timeout, :seen, :errors, :reasons
    attr_accessor :group, :frame, :live, :waits, :closed

    def initialize(limit, timeout)
      @limit = limit
      @timeout = timeout
      @seen = []
      @errors = [] # in the order in which they reach the group
      @reasons = [] # why its tasks may be cancelled
      @live = 0
    end

    # An error reaches the group.
    def saw(error, now)
      return if @errors.any? { |each| each.equal?(error) }

      @errors << error
      @frame.asked ||= Asked.new([error], now) unless @closed
      close(error.is_a?(Reactor::Cancelled) ? error.reason : error, now)
    end

    # Its tasks are cancelled.
    def close(reason, now)
      return if @closed

      @closed = true
      @reasons << reason
      cancel(now)
    end

    def cancel(now) = @seen.each { |seen| seen.frame.asked ||= Asked.new(@reasons, now) if seen.runs? }

    # The error that its owner raises, as far as is known.
    def error = @errors.find { |error| !error.is_a?(StandardError) } || @errors.first

    def why?(reason) = @reasons.any? { |each| each.equal?(reason) }
  end
end

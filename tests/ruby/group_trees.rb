# frozen_string_literal: true

require "timeout"

# Random trees of groups, a fiber that disturbs them, and a model of how each group and task may end. All decisions come from a
# single random generator, in the order in which the fibers run.
module GroupTrees
  # Raised by a task, by a block, or by an ensure clause.
  class Own < StandardError; end

  # Raised in a task's fiber from outside.
  class FromOutside < StandardError; end

  # Timeout.timeout around part of a task.
  class Expired < StandardError; end

  INTERRUPTION = Reactor.const_get(:Scope, false)::Interruption

  # A task as seen by its own code.
  Seen = Struct.new(:task, :fiber, :outcome, :error, :swallowed, :transient)

  # A group: what its tasks have seen.
  class Node
    attr_reader :limit, :timeout, :seen, :errors
    attr_accessor :group, :live

    def initialize(limit, timeout)
      @limit = limit
      @timeout = timeout
      @seen = []
      @errors = [] # in the order in which they reach the group
      @live = 0
    end

    def saw(error) = @errors.any? { |each| each.equal?(error) } || @errors.push(error)
  end

  # Grows trees in the current fiber, and lists the violations.
  class World
    attr_reader :violations, :log

    def initialize(seed)
      @random = Random.new(seed)
      @violations = []
      @log = []
      @nodes = []
      @mutex = Thread::Mutex.new
      @holders = 0
    end

    # @param trees [Integer] number of trees, run one after another
    def run(trees)
      trees.times do |number|
        @log << number
        grow(0, nil)
      rescue Own, FromOutside, Expired, Timeout::Error => error
        @log << error.class
      end
    ensure
      @over = true
    end

    # Cancels tasks and groups, and raises in fibers.
    def disturb
      until @over
        sleep @random.rand * 0.001
        node = @nodes.sample(random: @random) or next
        seen = node.seen.sample(random: @random)
        case @random.rand(6)
        when 0, 1 then seen&.task&.cancel(:disturbed)
        when 2 then node.group.cancel(:disturbed)
        when 3 then raise_in(seen) if seen&.fiber&.alive?
        end
      end
    end

    private

    def violated(what) = @violations << what
    def span = @random.rand(4).zero? ? 0 : @random.rand * 0.002

    def raise_in(seen)
      seen.fiber.raise(FromOutside)
    end

    # A group whose end is checked. The outermost one has a time limit, because tasks may wait forever.
    def grow(depth, outer)
      node = Node.new([nil, 1, 2, 5].sample(random: @random), depth.zero? ? 0.02 : [nil, nil, 0.003].sample(random: @random))
      begin
        Reactor.group(limit: node.limit, timeout: node.timeout) { |group| body(node, group, depth, outer) }
      rescue Exception => error # rubocop:disable Lint/RescueException
        nil
      ensure
        @nodes.delete(node)
        check_end(node)
      end
      check(node, error)
      @log << (error ? error.class : :ended)
      return if error.nil?
      raise error if outer.nil? || @random.rand(3).zero? || !error.is_a?(StandardError)

      outer.swallowed = true
    end

    def body(node, group, depth, outer)
      node.group = group
      @nodes << node
      @random.rand(1..5).times { @random.rand(4).zero? ? step(node, depth, outer) : start(node, depth) }
      group.first { |value| value > 1 } if @random.rand(8).zero?
      raise Own, "block" if @random.rand(10).zero?
    rescue Exception => error # rubocop:disable Lint/RescueException
      node.saw(error) unless error.is_a?(INTERRUPTION) && error.equal?(group.instance_variable_get(:@scope).stop)
      raise
    end

    def start(node, depth)
      seen = Seen.new
      seen.transient = @random.rand(6).zero?
      seen.task = node.group.async(node, seen, depth, transient: seen.transient) { |*given| work(*given) }
      node.seen << seen
    end

    # Nothing waits in the outermost clauses, so errors reach the group in the order in which they are seen here.
    def work(node, seen, depth)
      seen.fiber = Fiber.current
      node.live += 1 unless seen.transient
      violated "#{node.live} tasks with a limit of #{node.limit}" if node.limit && node.live > node.limit
      value = steps(node, seen, depth)
      seen.outcome = :completed
      value
    rescue Exception => error # rubocop:disable Lint/RescueException
      seen.outcome = :failed
      node.saw(seen.error = error)
      raise
    ensure
      seen.outcome ||= :cancelled
      node.live -= 1 unless seen.transient
    end

    def steps(node, seen, depth)
      @random.rand(1..3).times { step(node, depth, seen) }
      raise Own, "task" if @random.rand(8).zero?

      @random.rand(4)
    rescue Expired
      seen.swallowed = true
      0
    ensure
      clean(seen)
    end

    # Waits that end by themselves. Only an exception from outside may cut them short.
    def clean(seen)
      case @random.rand(6)
      when 0 then sleep span
      when 1 then Reactor.group { |group| 2.times { |i| group.async { sleep span; i } }; violated "a cut ensure clause" unless group.results == [0, 1] }
      when 2 then Enumerator.new { |yielder| sleep span; yielder << 1 }.next
      when 3 then raise Own, "ensure" if @random.rand(3).zero?
      end
      seen.swallowed = true
    end

    def step(node, depth, seen)
      case @random.rand(13)
      when 0, 1 then sleep span
      when 2 then seen.nil? || seen.swallowed ? sleep(span) : sleep
      when 3 then Thread::Queue.new.pop(timeout: seen.nil? || seen.swallowed ? span : nil)
      when 4 then lock
      when 5 then Enumerator.new { |yielder| sleep span; yielder << 1 }.next
      when 6 then Timeout.timeout(span, Expired) { sleep span }
      when 7 then depth < 2 && node.group && start(node, depth + 1)
      when 8 then node.seen.sample(random: @random)&.task&.cancel(:sibling)
      when 9 then depth < 3 && grow(depth + 1, seen || Seen.new)
      when 10 then depth < 3 && Enumerator.new { |yielder| yielder << grow(depth + 1, seen || Seen.new) }.next
      when 11 then shielded if seen&.fiber.equal?(Fiber.current) # in an Enumerator, what comes for the task goes on
      when 12 then depth < 3 && Reactor.deadline(span) { grow(depth + 1, seen || Seen.new) }
      end
    rescue Reactor::DeadlineExceeded
      seen.swallowed = true if seen
    rescue RuntimeError => error
      raise unless error.message == "this group has ended" # a task that started one
    end

    # Only what is raised in the fiber itself may cut it short.
    def shielded
      begun = false
      Reactor.shield do
        begun = true
        @random.rand(2).zero? ? sleep(span) : Reactor.group { |group| group.map([1, 2]) { sleep span } }
        begun = false
      end
    rescue FromOutside
      begun = false
      raise
    ensure
      violated "a cut shield" if begun
    end

    def lock
      @mutex.synchronize do
        violated "two fibers hold one mutex" unless (@holders += 1) == 1
        sleep span
      ensure
        @holders -= 1
      end
    end

    def check_end(node)
      violated "#{node.live} tasks outlive their group" unless node.live.zero?
      states = node.seen.to_h { |seen| [seen.task&.state, seen.outcome] }.reject { |state, outcome| state.nil? || state == outcome }
      violated "states #{states}" unless states.empty?
      vague = node.seen.select { |seen| seen.task&.state == :cancelled && seen.task.reason.nil? }
      violated "#{vague.size} tasks cancelled without a reason" unless vague.empty?
      violated "size #{node.group.size}" if node.group && !node.group.size.zero?
    end

    # The first error, or the one that came from outside while the tasks ended.
    def check(node, error)
      first = node.errors.first
      case error
      when nil then violated "#{first.inspect} is lost" if first
      when first then violated "another error" unless error.equal?(first)
      when FromOutside, Expired then nil
      when Timeout::Error then violated "a timeout instead of #{first.inspect} of #{node.timeout.inspect}" if first || node.timeout.nil?
      when INTERRUPTION then nil # of an outer group, whose block this is
      when RuntimeError then violated "#{error.inspect} instead of #{first.inspect}" unless error.message.empty? # the VM kills an Enumerator by such an error
      else violated "#{error.inspect} instead of #{first.inspect}"
      end
    end
  end
end

# frozen_string_literal: true

require_relative "group_trees/frame"

# Random trees of scopes (groups, tasks, deadlines, shields, timeouts), a fiber that disturbs them, and a model of how each may end.
# All decisions come from a single random generator, in the order in which the fibers run.
module GroupTrees
  # The unit of all times, exact as a Float: so limits, ends and answers often coincide.
  TICK = 1.0 / 512

  # A tree that grows in the current fiber, and its violations.
  class World
    attr_reader :violations, :log

    # @param exact [Boolean] whether time passes only while all fibers wait
    # @param threads [Boolean] whether to use other threads, whose order no seed decides
    def initialize(seed, exact: true, threads: true)
      @random = Random.new(seed)
      @exact = exact
      @threads = threads
      @violations = []
      @log = []
      @fates = {}.compare_by_identity # of errors
      @shared = {}.compare_by_identity # errors of a deadline that ends blocks in several fibers
      @frames = {}.compare_by_identity # by their tokens
      @nodes = []
      @mutex = Thread::Mutex.new
      @pipe = IO.pipe
      @steps = 150
      @helpers = 0
    end

    # The handler for errors that groups and fibers report.
    def report(error) = fate(error, :reported)

    # Grows the tree in a fiber of the scheduler.
    def run
      sleep 0
      before = leftovers
      helper { disturb }
      root = Frame.new(:root, nil)
      begin
        grow(root)
      rescue Own, Grave, FromOutside, Expired, Reactor::DeadlineExceeded => error
        fate(error, :raised)
      end
      @over = true
      attend(root) { sleep TICK } while @helpers.positive?
      check_errors
      check_frames
      violated "left: #{(leftovers.to_a - before.to_a).to_h}, before: #{before}" if leftovers != before
    ensure
      @pipe.each(&:close)
    end

    private

    def violated(what) = @violations << what
    def chance?(one_in) = @random.rand(one_in).zero?
    def span = @random.rand(5) * TICK
    def now = Reactor::Clock.now
    def say(*what) = @log << [now, *what]

    def leftovers
      gauges = Fiber.scheduler.stats.slice(:live, :parked, :ready, :waiting_io, :waiting_sleep, :waiting_block, :waiting_other, :watchers, :timers)
      gauges.merge(scope: Reactor::Scope.innermost, remaining: Reactor.remaining)
    end

    # A fiber that is in no scope, and ends by itself.
    def helper
      @helpers += 1
      Fiber.schedule(storage: {}) do
        yield
      ensure
        @helpers -= 1
      end
    end

    # --- errors --------------------------------------------------------------------------------------------------

    def made(error) = error.tap { @fates[error] ||= [] }

    FINAL = %i[raised swallowed reported].freeze

    # What became of an error: :raised out of the tree, :swallowed, :reported, :kept by its task, :replaced in an ensure clause.
    def fate(error, what)
      return if error.is_a?(Reactor::Cancelled)

      ends = @fates[made(error)]
      twice = FINAL.include?(what) && ends.intersect?(FINAL) && !@shared[error]
      violated "#{error.inspect} is #{what} and #{ends}" if twice
      ends << what
    end

    # In real time, an error from outside may come together with the end of a scope, and give way to it.
    def check_errors
      @fates.each { |error, ends| violated "#{error.inspect} is lost" if ends.empty? && (@exact || !error.is_a?(FromOutside)) }
    end

    # Something was raised where the code of the frame waits.
    def arrived(frame, error)
      case error
      when Reactor::Cancelled
        cancelled(frame, error)
        # An Enumerator's wait is ended from another fiber, and an interruption does nothing to a fiber that no longer waits.
        replaced(frame, error) if frame.around.any? { |each| each.kind == :enumerator }
      when Expired then expired(frame, error)
      when FromOutside then violated "an error from outside that was refused" unless @fates.key?(error)
      end
      @fates[error]&.intersect?(%i[raised swallowed]) && !@shared[error] && violated("#{error.inspect} again")
    end

    def cancelled(frame, token)
      ended = @frames[token]
      return violated "a Cancelled of a scope that is not around" unless ended && frame.around.include?(ended)
      return if ended.flying

      violated "a #{ended.kind} is ended twice" if ended.told
      violated "a shield is cut by a #{ended.kind}" unless frame.exposed.include?(ended)
      check_cause(ended, token)
      ended.told = ended.flying = true
    end

    def check_cause(ended, token)
      reason = token.reason
      asked = ended.asked&.reasons&.any? { |each| each.equal?(reason) }
      late = ended.kind != :task && ended.elapsed?(now) && reason.is_a?(Reactor::DeadlineExceeded)
      known = ended.kind == :task && (ended.node.waits || ended.node.why?(reason))
      violated "a #{ended.kind} ends for #{reason.inspect}" unless asked || late || known
    end

    def expired(frame, error)
      ended = error.frame
      return if ended.flying

      violated "a timeout that is not around" unless frame.around.include?(ended)
      violated "a timeout is raised twice" if ended.told
      violated "a timeout is early" unless ended.elapsed?(now)
      ended.told = ended.flying = true
    end

    def frame_of(error) = error.is_a?(Expired) ? error.frame : @frames[error]

    def swallow(error)
      frame_of(error)&.flying = false
      fate(error, :swallowed)
    end

    # Whether the code that handles the error is a clause of an ending: an error that another one replaces in a clause is its cause. The
    # errors of the clauses around it are not asked. Ruby 4.0 may take a cause from another fiber: until that fiber's block is over, the
    # library takes it for this one's.
    def ending?(error, frame)
      handled = frame.chain.filter_map(&:handles)
      causes = Enumerator.produce(error, &:cause).take_while { |cause| cause && handled.none? { |outer| outer.equal?(cause) } }
      endings, others = causes.grep(Reactor::Cancelled).partition { |cause| cause.equal?(error) || frame.around.include?(@frames[cause]) }
      frame.around.each { |each| each.vague = true } if others.any?
      endings.any? { |cause| cause.equal?(error) || @frames[cause].ends.zero? }
    end

    # An ensure or rescue clause that waits.
    def clause(frame)
      error = $!
      ended = frame_of(error) if error
      flying = ended&.flying
      ended.flying = false if ended
      inner = Frame.new(:ensure, frame)
      inner.keeps = ending?(error, frame)
      inner.handles = error
      inner.bare = error.is_a?(FromOutside) && error.cause.nil?
      yield inner
      ended.flying = flying if ended
    rescue Exception => another # rubocop:disable Lint/RescueException
      fate(error, :replaced) if error && @fates.key?(error) && !error.equal?(another)
      raise
    end

    # --- steps ---------------------------------------------------------------------------------------------------

    # A call in which the frame's code itself waits.
    def attend(frame)
      start = now
      value = yield
      check_time(frame, start)
      value
    rescue Exception => error # rubocop:disable Lint/RescueException
      arrived(frame, error)
      raise
    end

    # The frame's code has waited since then, and goes on.
    def check_time(frame, start)
      late = @exact && now > start && frame.exposed.find { |each| each.overdue?(now) }
      violated "a #{late.kind} is not ended in time" if late
    end

    STEPS = %i[
      pause pause hang queue lock condition pipe offload enumerator timeout deadline deadline shield shield transaction transaction
      shrug grow grow start cancel many move remaining error
    ].freeze

    def steps(frame, most = 3)
      @random.rand(1..most).times do
        next if (@steps -= 1).negative?

        kind = STEPS.sample(random: @random)
        send(kind, frame) unless frame.depth > 12
        say(kind, frame.kind)
      end
    end

    def pause(frame) = attend(frame) { sleep span }
    def hang(frame) = frame.may_hang? ? attend(frame) { chance?(2) ? sleep : Thread::Queue.new.pop } : pause(frame)

    def queue(frame)
      queue = Thread::Queue.new
      attend(frame) do
        helper { sleep span; queue << 1 }
        queue.pop(timeout: chance?(3) ? span : nil)
      end
    end

    def lock(frame)
      attend(frame) do
        @mutex.synchronize do
          violated "two fibers hold one mutex" if @held
          @held = true
          sleep span
        ensure
          @held = false
        end
      end
    end

    def condition(frame)
      mutex = Thread::Mutex.new
      condition = Thread::ConditionVariable.new
      attend(frame) do
        helper { sleep span; condition.signal }
        mutex.synchronize do
          condition.wait(mutex, TICK * 2)
        ensure
          violated "the mutex is lost" unless mutex.owned?
        end
      end
    end

    def pipe(frame)
      attend(frame) do
        helper { sleep span; @pipe[1].write("x") }
        @pipe[0].readpartial(1)
      end
    end

    # What was raised in the fiber meanwhile has given way to this error.
    def replaced(frame, error)
      sent = @fates.select { |each, ends| ends.empty? && each.is_a?(FromOutside) && each.fiber.equal?(frame.seen&.fiber) }
      sent.each_key { |each| fate(each, :replaced) unless each.equal?(error) }
    end

    # Their ends may have been raised where no code has seen it. A group that waits for its tasks may have ended them.
    def blur(frames)
      frames.each { |frame| frame.vague ||= frame.ending?(now) || (frame.kind == :task && frame.node.waits) }
    end

    # Waits for the job, whatever comes meanwhile: then raises only some of it.
    def offload(frame)
      threads = @threads && frame.chain.none? { |each| each.kind == :enumerator } # there a second cancellation may replace the first
      attend(frame) { threads ? Reactor.offload { Thread.pass } : sleep(0) }
    rescue Exception => error # rubocop:disable Lint/RescueException
      blur(frame.around)
      replaced(frame, error)
      raise
    end

    def enumerator(frame)
      inner = Frame.new(:enumerator, frame)
      Enumerator.new { |yielder| yielder << inner.run { steps(inner) } }.next
    end

    def timeout(frame)
      inner = Frame.new(:timeout, frame)
      seconds = TICK * @random.rand(1..4)
      inner.due = now + seconds
      error = Expired.new("expired")
      error.frame = inner
      Timeout.timeout(seconds, error) { inner.run { steps(inner) } }
    rescue Expired => error
      made(error)
      raise unless error.frame.equal?(inner)

      swallow(error)
    end

    def transaction(frame)
      steps(frame, 4)
      done = true
    rescue Exception # rubocop:disable Lint/RescueException
      fate = :rolled_back
      clause(frame) { |inner| pause(inner) } if chance?(2)
      raise
    else
      fate = :committed
    ensure
      violated "a half transaction: #{done.inspect}, #{fate.inspect}" unless fate == (done ? :committed : :rolled_back)
    end

    # Swallows a cancellation and goes on, unless a group in between would wait for its tasks.
    def shrug(frame)
      steps(frame)
    rescue Reactor::Cancelled => error
      ended = @frames[error]
      between = frame.around.take_while { |each| !each.equal?(ended) }
      raise if ended.nil? || between.any? { |each| each.kind == :group }

      swallow(error)
      cancel_group(frame, ended.node) if ended.kind == :group
    end

    def error(_frame)
      case @random.rand(6)
      when 0 then raise made(Own.new("step"))
      when 1 then raise made(Grave.new("step")) if chance?(3)
      end
    end

    def remaining(frame)
      time = frame.inherited&.time
      expected = time && [time - now, 0.0].max
      exact = @exact && !frame.inherited&.vague
      violated "#{Reactor.remaining.inspect} s remain instead of #{expected.inspect}" if exact && Reactor.remaining != expected
    end

    def move(frame)
      moved = frame.chain.select(&:deadline).sample(random: @random) or return
      seconds = span
      moved.move(seconds, now)
      moved.deadline.move(seconds)
    end

    # --- deadlines and shields -----------------------------------------------------------------------------------

    def deadline(frame)
      inner = Frame.new(:deadline, frame)
      raises = !chance?(3)
      seconds = span
      limit(inner, seconds)
      left = nil
      begin
        value = Reactor.deadline(seconds, raises: raises) do |given|
          inner.deadline = given
          enter(inner, Reactor::Scope.innermost) { steps(inner); inner }
        rescue Exception => left # rubocop:disable Lint/RescueException
          raise
        end
      rescue Exception => error # rubocop:disable Lint/RescueException
        nil
      end
      check_deadline(inner, raises, left, error, value)
      return if error.nil?
      raise error unless error.is_a?(Reactor::DeadlineExceeded) && !chance?(3)

      swallow(error)
    end

    # In real time, which of two deadlines is earlier may be a matter of microseconds.
    def limit(frame, seconds)
      frame.limit(seconds, now)
      frame.vague ||= !@exact && !frame.outer.inherited.nil?
    end

    def enter(frame, scope)
      @frames[frame.token = scope.cancelled] = frame
      frame.run { yield frame }
    end

    def check_deadline(frame, raises, left, error, value)
      if left.equal?(frame.token) && left
        frame.flying = false
        made(error) if error
        fits = raises ? error.is_a?(Reactor::DeadlineExceeded) && error.equal?(left.reason) : error.nil? && value.nil?
        @shared[made(error)] = true if error && frame.bound
      else
        fits = error.equal?(left) && (left || value.equal?(frame))
      end
      violated "a deadline (raises: #{raises}) that #{left.inspect} has left: #{error.inspect}, #{value.inspect}" unless fits
    end

    def shield(frame)
      inner = Frame.new(:shield, frame)
      ending = held(frame, inner)
      left = nil
      begin
        value = Reactor.shield do
          ending.each { |each| violated "a shield begins in a #{each.kind} that has ended" unless each.told }
          inner.run { steps(inner); inner }
        rescue Exception => left # rubocop:disable Lint/RescueException
          raise
        end
      rescue Exception => error # rubocop:disable Lint/RescueException
        arrived(frame, error) unless left
        violated "a shield that #{left.inspect} has left: #{error.inspect}" if left && !error.equal?(left)
        raise
      end
      violated "the value of a shield" unless value.equal?(inner)
      held(frame, inner).each { |each| violated "the end of a #{each.kind} does not come after the shield" }
    end

    # @return [Array<Frame>] those whose end the shield would delay, or has delayed
    def held(frame, shield)
      frame.exposed.select do |each|
        each.kind != :timeout && each.fiber.equal?(shield.fiber) && each.ending?(now) && (@exact || each.asked)
      end
    end

    # --- groups --------------------------------------------------------------------------------------------------

    # A group whose end is checked. The outermost one has a time limit, because tasks may wait forever.
    def grow(frame)
      outermost = frame.kind == :root
      node = Node.new([nil, nil, 1, 2, 5].sample(random: @random), outermost ? 12 * TICK : [nil, nil, span].sample(random: @random))
      inner = node.frame = Frame.new(:group, frame, node: node)
      inner.due = node.timeout && (now + node.timeout)
      left = start = nil
      begin
        value = Reactor.group(limit: node.limit, timeout: node.timeout) do |group|
          node.group = group
          enter(inner, group.scope) { body(inner) }
        rescue Exception => left # rubocop:disable Lint/RescueException
          raise
        ensure
          start = now
        end
      rescue Exception => error # rubocop:disable Lint/RescueException
        nil
      ensure
        @nodes.delete(node)
      end
      came(frame, node, left, error)
      check_time(frame, start || now) unless error # it has waited for its tasks in a clause
      check_group(node, left, error, value)
      return if error.nil?
      raise error if outermost || error.is_a?(Reactor::Cancelled) || !error.is_a?(StandardError) || chance?(3)

      swallow(error)
    end

    def body(frame)
      node = frame.node
      @nodes << node
      @random.rand(1..4).times { chance?(3) ? steps(frame, 1) : start(frame) }
      steps(frame, 1) && attend(frame) { node.group.wait } if chance?(2)
      node.waits = true
      node.close(:left, now) if node.live.zero?
      frame
    rescue Exception => error # rubocop:disable Lint/RescueException
      if error.equal?(frame.token)
        node.close(error.reason, now)
      else
        node.closed || node.frame.asked ||= Asked.new([], now)
        node.saw(error, now)
      end
      raise
    ensure
      frame.flying = false
    end

    def start(frame)
      node = frame.node or return
      return if node.limit && !(frame.equal?(node.frame) || frame.may_hang?)

      seen = Seen.new(frame, transient: chance?(6))
      node.seen << seen
      unless_closed(frame) { attend(frame) { seen.task = node.group.async(transient: seen.transient) { work(node, seen) } } }
    end

    # Tasks whose errors do not fail the group, or the first of which ends the others.
    def many(frame)
      node = frame.node
      return unless node && frame.may_hang? && (node.limit.nil? || frame.equal?(node.frame))

      case @random.rand(3)
      when 0 then settle(frame, node)
      when 1 then any(frame, node)
      when 2 then first(frame, node)
      end
    end

    def settle(frame, node)
      seconds = chance?(2) ? span : nil
      finish = seconds && (now + seconds)
      seens = Array.new(2) { Seen.new(frame, kept: true, finish: finish) }
      node.seen.concat(seens)
      tasks = unless_closed(frame) { attend(frame) { node.group.settle(seens, timeout: seconds) { |seen| work(node, seen) } } } or return
      tasks.zip(seens) do |task, seen|
        violated "a settled task is #{task.state} with #{task.error.inspect}" unless task.state == seen.outcome && task.error.equal?(seen.error)
      end
    end

    def any(frame, node)
      node.reasons.push(:lost, :left)
      seens = Array.new(2) { Seen.new(frame, kept: true) }
      node.seen.concat(seens)
      unless_closed(frame) { attend(frame) { node.group.any(seens) { |seen| work(node, seen) } } }
    rescue Own, FromOutside, Expired, Reactor::DeadlineExceeded => error
      raise unless seens.any? { |seen| error.equal?(seen.error) }

      swallow(error)
    end

    def first(frame, node)
      return unless frame.equal?(node.frame)

      node.reasons << :lost
      unless_closed(frame) { attend(frame) { node.group.first { |value| value > 1 } } }
    end

    def unless_closed(frame)
      yield
    rescue RuntimeError => error
      raise unless error.message == "this group has ended"

      check_left(frame, frame.node.frame)
    end

    # Nothing waits in the outermost clauses, so errors reach the group in the order in which they are seen here.
    def work(node, seen)
      frame = seen.frame = Frame.new(:task, node.frame, seen: seen, starter: seen.starter)
      scope = Reactor::Scope.innermost
      frame.asked = Asked.new(node.reasons, now) if node.closed
      node.live += 1 unless seen.transient
      violated "#{node.live} tasks with a limit of #{node.limit}" if node.limit && node.live > node.limit
      value = enter(frame, seen.finish ? scope.outer : scope) { seen.finish ? in_time(frame, scope) : in_task(frame) }
      seen.outcome = :completed
      value
    rescue Exception => error # rubocop:disable Lint/RescueException
      frame.flying = false if error.equal?(frame.token)
      failed(node, seen, error)
      raise
    ensure
      node.live -= 1 unless seen.transient
    end

    def in_time(frame, scope)
      inner = Frame.new(:deadline, frame)
      limit(inner, frame.seen.finish - now)
      enter(inner, scope) { in_task(inner) }
    rescue Reactor::Cancelled => error
      raise unless error.equal?(inner.token)

      inner.flying = false
      raise made(error.reason) # as the library does
    end

    def in_task(frame)
      steps(frame)
      @random.rand(4)
    ensure
      clause(frame) { |inner| clean(inner) }
    end

    def failed(node, seen, error)
      return seen.outcome = :cancelled if error.equal?(seen.frame.token)

      seen.outcome = :failed
      seen.error = error
      violated "a task fails by #{error.inspect}" if error.is_a?(Reactor::Cancelled)
      seen.kept && error.is_a?(StandardError) ? fate(error, :kept) : node.saw(error, now)
    end

    def clean(frame)
      case @random.rand(6)
      when 0, 1 then pause(frame)
      when 2 then shield(frame)
      when 3 then deadline(frame)
      when 4 then raise made(Own.new("ensure")) if chance?(3)
      end
    end

    # --- cancellations -------------------------------------------------------------------------------------------

    def cancel(frame)
      node = frame.node or return
      return if chance?(2)

      chance?(4) ? cancel_group(frame, node) : cancel_task(frame, node.seen.sample(random: @random))
    end

    def cancel_task(frame, seen)
      return unless seen&.task

      reason = Object.new
      before = seen.frame&.asked
      seen.frame.asked = Asked.new([reason], now) if seen.runs?
      called = attend(frame) { seen.task.cancel(reason) }
      seen.explicit = reason if called
      check_left(frame, seen.frame) if called
    ensure
      seen.explicit = reason if reason && seen.task.reason.equal?(reason)
      seen.frame.asked = before if reason && !seen.explicit.equal?(reason)
    end

    def cancel_group(frame, node)
      reason = Object.new
      node.reasons << reason
      own = frame.seen.frame if frame.seen && node.seen.include?(frame.seen) && frame.seen.frame.asked.nil?
      node.cancel(now)
      attend(frame) { node.group.cancel(reason) }
      check_left(frame, own)
    end

    # Who has ended a block around its own code does not go on.
    def check_left(frame, ended)
      goes_on = ended&.asked && ended.ending?(now) && ended.fiber.equal?(Fiber.current) && frame.exposed.include?(ended)
      violated "a call that ends the #{ended.kind} around it returns" if goes_on && !ended.node.waits
    end

    # Cancels tasks and groups, and raises in fibers.
    def disturb
      outside = Frame.new(:root, nil)
      until @over
        attend(outside) { sleep span + TICK }
        node = @nodes.sample(random: @random) or next
        seen = node.seen.sample(random: @random)
        case @random.rand(6)
        when 0 then cancel_task(outside, seen)
        when 1 then cancel_group(outside, node)
        when 2 then raise_in(seen.fiber) if seen&.runs?
        when 3 then interrupt(seen.fiber) if seen&.runs?
        end
      end
    end

    def raise_in(fiber)
      fiber.raise(made(FromOutside.new("raise", fiber)))
    end

    def interrupt(fiber)
      error = FromOutside.new("interrupt", fiber)
      made(error) if Fiber.scheduler.fiber_interrupt(fiber, error)
    end

    # --- ends ----------------------------------------------------------------------------------------------------

    # What was raised in the fiber while the group waited, after its block: the group raises some of it.
    def came(frame, node, left, error)
      late = !error.equal?(left) && [FromOutside, Expired, Reactor::Cancelled].any? { |kind| error.is_a?(kind) }
      blur(frame.around.reject { |each| each.equal?(frame_of(error)) }) if late # it may have replaced theirs
      causes = Enumerator.produce(error, &:cause).take_while(&:itself) if error
      [*node.group.errors, *causes].each do |each|
        # Ruby 4.0 may take a cause from another fiber.
        next if frame_of(each) ? !frame.around.include?(frame_of(each)) : @fates[each]&.intersect?(FINAL)

        from_outside = [FromOutside, Expired, Reactor::Cancelled].any? { |kind| each.is_a?(kind) }
        arrived(frame, each) unless !from_outside || each.equal?(left) || node.errors.any? { |known| known.equal?(each) } || frame_of(each)&.told
        next if each.equal?(error)

        frame_of(each)&.flying = false
        fate(each, :replaced) if @fates[each]&.empty?
      end
      replaced(frame, error) if error && !error.equal?(left)
    end

    def check_group(node, left, error, value)
      made(error) if error && !error.is_a?(Reactor::Cancelled)
      check_error(node, left, error, value)
      check_reports(node, error)
      check_tasks(node, error)
    end

    # A group raises its first error, or what came while its tasks ended.
    def check_error(node, left, error, value)
      token = node.frame.token
      return violated "a group raises its own cancellation" if error && error.equal?(token)
      return violated "#{node.error.inspect} is lost" if error.nil? && node.error
      return violated "a group without errors: #{value.inspect}" if error.nil? && (left || !value.equal?(node.frame))
      return if error.nil? || error.equal?(node.error)
      return if left.nil? && error.is_a?(Reactor::DeadlineExceeded) && node.error.nil? && node.frame.elapsed?(now)
      return if left.equal?(token) && node.error.nil? && error.equal?(token.reason) && error.is_a?(Reactor::DeadlineExceeded)
      return if [FromOutside, Expired, Reactor::Cancelled].any? { |kind| error.is_a?(kind) } && node.errors.none? { |each| each.equal?(error) }

      violated "a group raises #{error.inspect}, not #{node.error.inspect}"
    end

    # Each other error is reported, but one that the block around this one raises.
    def check_reports(node, error)
      told = error.is_a?(Reactor::Cancelled) ? error.reason : error
      node.errors.each do |each|
        next if each.is_a?(Reactor::Cancelled) || @shared[each] # another group may have reported it

        reported = @fates[each].count(:reported)
        expected = each.equal?(told) ? 0 : 1
        violated "#{each.inspect} is reported #{reported} times, not #{expected}" unless reported == expected
      end
    end

    def check_tasks(node, error)
      violated "#{node.live} tasks outlive their group" if node.seen.any?(&:runs?)
      violated "size #{node.group.size}" unless node.group.size.zero?
      node.reasons.push(:left, error.is_a?(Reactor::Cancelled) ? error.reason : error)
      node.seen.each do |seen|
        task = seen.task or next
        violated "a task is #{task.state}, not #{seen.outcome}" unless task.state == seen.outcome
        next unless task.state == :cancelled

        fits = seen.explicit ? task.reason.equal?(seen.explicit) : node.why?(task.reason) || (node.waits && while_it_waited?(node, task.reason))
        violated "a task was cancelled for #{task.reason.inspect}" unless fits
        violated "a task's two reasons" unless task.reason.equal?(seen.frame&.token&.reason)
      end
    end

    # What comes while a group waits after its block, the block does not see.
    def while_it_waited?(node, reason)
      told = node.frame.around.select(&:told).map { |frame| frame.token&.reason }
      (node.group.errors + told).any? { |each| each.equal?(reason) } || (reason.is_a?(Reactor::DeadlineExceeded) && node.frame.elapsed?(now))
    end

    def check_frames
      @frames.each_value { |frame| violated "a #{frame.kind} has ended #{frame.ends} times" unless frame.ends == 1 }
    end
  end
end

# frozen_string_literal: true

require_relative "edges"
require_relative "program"
require_relative "waits"

module Fuzz
  # Makes a program from a seed. Its outcome does not depend on which task runs first: each wait has one end, which comes when
  # the task is known to sleep there. A limit is either far away, or what it limits never ends by itself.
  class Generator
    FAR = [60, 60, 60, 1e9, 10**6].freeze
    CERTAIN = 0.02     # seconds of a limit that is reached
    DISTURBED = 0.25   # seconds of a wait during which a signal arrives
    LONG_PARKED = 0.12 # seconds after which the native loop has looked at a descriptor again

    BLOCKS = { wait: 10, timed: 3, nap: 1, raise: 1, guard: 4, timeout: 2, certain: 2, enumerator: 4, suspended: 1, fiber: 2,
               thread: 1, lock: 1, fork: 1, offload: 3, keep: 2, look: 2, files: 4 }.freeze
    ENDS = { "feed" => 8, "eof" => 2, "close" => 4, "reopen" => 2, "raise" => 4, "kill" => 2 }.freeze
    AROUND = %w[none none guard far certain lock].freeze
    HANDLERS = ["sleep 0.01", "Thread::Queue.new.pop(timeout: 0.01)", "IO.select(nil, nil, nil, 0.01)", "nil"].freeze
    OPEN_ENDED = WAITS.select { |_, wait| wait.feed }.keys.freeze
    TIMED = WAITS.select { |_, wait| wait.timed }.keys.freeze
    # Locks that threads of the parent hold are free in a child, and its parent's children are not its own.
    IN_CHILD = (TRANSFERS.keys.grep_v(/popen/) + %w[pop long_pop sized_push condition long_condition monitor_condition sleep mutex_sleep]).freeze
    SHARED = WAITS.select { |_, wait| wait.shared }.keys.freeze

    # @param seed [Integer]
    # @return [Program]
    def self.program(seed) = new(seed).program

    def initialize(seed)
      @random = Random.new(seed)
      @value = 0
    end

    def program
      @signals = chance(0.2)
      @ending = chance(0.12) && !@signals ? "kill" : "finish"
      tasks = Array.new(1 + @random.rand(3)) do
        @kills = false
        body(0)
      end
      shares = tasks.size > 1 ? Array.new(pick(1 => 2, 0 => 3)) { |number| share(number, tasks) } : []
      tasks.each { |ops| ops << wait(pick_from(OPEN_ENDED), []) if chance(0.7) } if @ending == "kill"
      Program.new({ ending: @ending, conductor: @signals || @ending == "kill" || chance(0.3) ? "thread" : "fiber",
                    handler: (pick_from(HANDLERS) if @signals), shares:, tasks: })
    end

    private

    def chance(probability) = @random.rand < probability

    def pick_from(list) = list[@random.rand(list.size)]

    # @param weights [Hash{Object => Integer}]
    def pick(weights)
      left = @random.rand(weights.values.sum)
      weights.each { |what, weight| return what if (left -= weight).negative? }
    end

    def body(depth) = Array.new(1 + @random.rand(depth.zero? ? 3 : 2)) { op(depth) }

    def op(depth)
      what = pick(depth < 2 ? BLOCKS : BLOCKS.slice(:wait, :timed, :nap))
      send(:"make_#{what}", depth)
    end

    def make_wait(_depth) = pick_from(OPEN_ENDED).then { |kind| wait(kind, ends(kind)) }

    def make_timed(_depth)
      kind = pick_from(TIMED)
      disturbed = @signals && chance(0.6)
      wait(kind, disturbed ? [signal] : []).merge(seconds: disturbed ? DISTURBED : CERTAIN)
    end

    def make_nap(_depth) = { op: "nap" }
    def make_raise(_depth) = guard([{ op: "raise" }], [])
    def make_guard(depth) = guard(body(depth + 1), chance(0.6) ? [cleanup] : [])
    def make_timeout(depth) = { op: "timeout", seconds: pick_from(FAR), own: chance(0.3), body: body(depth + 1) }
    def make_fiber(depth) = { op: "fiber", storage: (value if chance(0.5)), body: in_place(@place, framed: true) { body(depth + 1) } }
    def make_thread(depth) = { op: "thread", body: in_place(:thread, framed: true) { [make_keep(depth), *body(depth + 1), make_look(depth)] } }
    def make_lock(depth) = { op: "lock", monitor: chance(0.5), body: body(depth + 1) }
    def make_certain(depth) = guard([{ op: "timeout", seconds: CERTAIN, own: chance(0.5), body: never(depth + 1) }], [])

    def make_keep(_depth) = { op: "keep", slot: pick_from(slots), value: value }
    def make_look(_depth) = { op: "look", slots: slots }

    # Only the fibers of a scheduler have jobs.
    def make_offload(depth)
      return make_look(depth) if @place

      in_place(:job) { { op: "offload", body: [make_look(depth), (make_keep(depth) if chance(0.5)), *(body(depth + 1) if chance(0.4))].compact } }
    end

    def make_files(_depth)
      calls = Array.new(1 + @random.rand(5)) { pick_from(pick(READINGS => 4, PUSHES => 4, MOVES => 3, COPIES => 3, WRITES => 1)) }
      target = pick_from(TARGETS.keys)
      # sendfile(2) puts pages of the file into a pipe or socket: a write to the file changes what has not been read there.
      calls.reject! { |call| call.start_with?("s%{n}.write") } if %w[pipe unix].include?(target)
      { op: "files", source: pick("file" => 5, "pipe" => 1, "unix" => 1, "string" => 1), target:,
        size: pick_from([3, 10, 300, 9000, 300_000]), body: [*calls, pick_from(COPIES)].map { |call| { op: "call", call:, value: pick_from([1, 2, 7, 40]) } } }
    end

    # State that is compared where the operations are: a thread's own only where no other task has the same thread.
    def slots
      own = { nil => [], job: %w[name priority report] }.fetch(@place, %w[variable name priority report]) # workers keep thread variables
      %w[storage local] + own + (@framed ? %w[match line] : [])
    end

    def value = @value += 1

    def in_place(place, framed: false)
      before = [@place, @framed]
      @place, @framed = place, framed
      yield
    ensure
      @place, @framed = before
    end

    def make_enumerator(depth) = in_place(@place) { enumerator(depth) }

    def enumerator(depth)
      around = pick_from(AROUND)
      between = around == "certain" ? never(depth + 1) : body(depth + 1).first(@random.rand(2))
      { op: "enumerator", around:, resumed: chance(0.5), before: body(depth + 1).first(@random.rand(2)),
        body: between, after: body(depth + 1).first(1) }.then { |made| around == "certain" ? guard([made], []) : made }
    end

    # An Enumerator that stays suspended while its owner waits.
    def make_suspended(depth)
      guard([{ op: "enumerator", around: "certain", resumed: false, before: [], body: never(depth + 1), after: [] }], [])
    end

    # A child has no conductor: what it waits for comes by itself.
    def make_fork(depth)
      in_place(:child) { fork_of(depth) }
    end

    def fork_of(depth)
      @in_child = true
      inner = Array.new(1 + @random.rand(2)) { chance(0.5) ? make_certain(depth + 2) : make_child_wait }
      { op: "fork", body: inner }
    ensure
      @in_child = false
    end

    def make_child_wait
      wait(pick_from(TIMED & IN_CHILD), []).merge(seconds: CERTAIN)
    end

    # A wait that only what is around it ends.
    def never(depth)
      return [wait(endless, [])] if depth > 3 || chance(0.5)

      inner = never(depth + 1)
      case @random.rand(5)
      when 0 then [guard(inner, chance(0.5) ? [cleanup] : [])]
      when 1 then [{ op: "fiber", body: inner }]
      when 2 then [{ op: "enumerator", around: "none", resumed: false, before: inner, body: [], after: [] }]
      when 3 then [{ op: "timeout", seconds: pick_from(FAR), own: chance(0.3), body: inner }]
      else [{ op: "lock", monitor: chance(0.5), body: inner }]
      end
    end

    # A kind of wait whose leftovers do not depend on when a limit cuts it: `system` may not have started its child yet.
    def endless = pick_from(@in_child ? IN_CHILD : OPEN_ENDED).then { |kind| kind == "system" ? "process_wait" : kind }

    def guard(body, cleanup) = { op: "guard", rescue: pick_from(%w[none standard standard all]), body:, ensure: cleanup }

    # What an ensure clause does: it waits.
    def cleanup
      case @random.rand(@in_child ? 1 : 3)
      when 0 then { op: "nap" }
      when 1 then wait(pick_from(TIMED), []).merge(seconds: CERTAIN)
      else pick_from(OPEN_ENDED).then { |kind| wait(kind, [step("feed")]) }
      end
    end

    def wait(kind, by) = { op: "wait", kind:, by:, holder:, seconds: nil }

    # A task that holds a lock is killed with the others, and it is not determined which of them is first.
    def holder = @ending == "kill" ? "thread" : pick_from(%w[task thread])

    # @return [Array<Hash>] what happens to a wait, the last of it ends the wait
    def ends(kind)
      possible = ENDS.select { |what, _| Program.possible?(kind, what) }
      possible = possible.except("close", "reopen") if @place == :job # as in known.json of a thread
      # A killed fiber whose ensure clauses end by an error that is rescued goes on, but at each switch to it the VM kills it once more,
      # instead of raising what Fiber#raise was given.
      possible = possible.except("raise", "kill") if @kills
      last = step(pick(possible))
      @kills ||= last[:do] == "kill"
      first = []
      first << signal if @signals && chance(0.6)
      first << step("gc") if chance(0.05)
      last = last.merge(handled: true) if @signals && last[:do] == "feed" && chance(0.4) && Program.handled?(kind, "thread")
      first << last
    end

    def signal = step("signal")

    def step(what) = { do: what, delay: chance(0.06) ? LONG_PARKED : 0, from: chance(0.3) ? "thread" : "here" }

    # A wait that several tasks have in common, put into two of them or more.
    def share(number, tasks)
      kind = pick_from(SHARED)
      tasks.shuffle(random: @random).first(2 + @random.rand(2)).each { |ops| ops << guard([{ op: "share", share: number }], []) }
      { kind:, holder:, by: [step(pick(ENDS.slice("feed", "eof", "close").select { |what, _| Program.possible?(kind, what) }))] }
    end
  end
end

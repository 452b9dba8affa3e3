# frozen_string_literal: true

require_relative "edges"
require_relative "program"

module Fuzz
  # Writes a program as Ruby source. The same source is run and shown.
  class Printer
    # @return [String] the source of a lambda that is given the stage
    def self.source(program) = new(program).source

    def initialize(program)
      @program = program
      @setup = []
      @steps = Hash.new { |steps, task| steps[task] = [] } # of each task: [site, operation], in the order of its sites
      @numbers = Hash.new(0)
      @site = 0
    end

    def source
      tasks = @program.tasks.each_with_index.map { |ops, number| task(ops, number) }
      @program.shares.each_with_index { |share, number| set_up(share, "s#{number}") }
      handler = ["  stage.on_signal { #{@program.data[:handler]} }"] if @program.data[:handler]
      ["lambda do |stage|", *@setup.map { |line| "  #{line}" }, *handler, *tasks, *conductor, "end", ""].join("\n")
    end

    private

    def name(task) = ("a".ord + task).chr

    def number(what) = @numbers[what] += 1

    def task(ops, number)
      @task = number
      @letter = name(number)
      ["  stage.task(:#{@letter}) do |#{@letter}|", *indented(lines(ops), 2), "  end"]
    end

    def indented(lines, levels = 1) = lines.map { |line| "#{"  " * levels}#{line}" }

    def lines(ops) = ops.flat_map { |op| send(:"print_#{op[:op]}", op) }

    def print_wait(op)
      @steps[@task] << [@site += 1, op]
      wait = WAITS.fetch(op[:kind])
      set_up(op, @site)
      return ["#{@letter}.wait(#{@site}) { #{fill(wait.call, @site)} }"] unless op[:seconds]

      ["#{@letter}.wait(#{@site}, least: #{op[:seconds]}) { #{fill(wait.timed, @site, op[:seconds])} }"]
    end

    def print_share(op)
      @steps[@task] << [@site += 1, op]
      number = op[:share]
      ["#{@letter}.wait(#{@site}, share: #{number}) { #{fill(WAITS.fetch(@program.shares[number][:kind]).call, "s#{number}")} }"]
    end

    def print_nap(_op) = ["sleep 0.001"]
    def print_raise(_op) = ["raise Fuzz::Own"]
    def print_fiber(op) = ["Fiber.new#{"(storage: { slot: #{op[:storage]} })" if op[:storage]} do", *indented(lines(op[:body])), "end.resume"]
    def print_thread(op) = ["Thread.new do", *indented(lines(op[:body])), "end.join"]
    def print_fork(op) = ["#{@letter}.fork do", *indented(lines(op[:body])), "end"]

    def print_lock(op)
      lock = "l#{number(:lock)}"
      @setup << "#{lock} = #{op[:monitor] ? "Monitor" : "Thread::Mutex"}.new"
      ["#{lock}.synchronize do", *indented(lines(op[:body])), "end"]
    end

    def print_guard(op)
      body = lines(op[:body])
      cleanup = lines(op[:ensure])
      rescued = { "standard" => ["rescue => error"], "all" => ["rescue Exception => error"] }[op[:rescue]]
      ["begin", *indented(body), *rescued, *("  #{@letter}.note(error)" if rescued),
       "ensure", *indented(cleanup), "  #{@letter}.note(\"cleaned up #{number(:guard)}\")", "end"]
    end

    def print_timeout(op) = ["Timeout.timeout(#{op[:seconds]}#{", Fuzz::Own" if op[:own]}) do", *indented(lines(op[:body])), "end"]

    def print_offload(op) = ["stage.offload do", *indented(lines(op[:body])), "end"]
    def print_keep(op) = [edge(STATES.fetch(op[:slot]).first, nil, op[:value])]
    def print_look(op) = ["#{@letter}.note(\"state: \#{Fuzz.text([#{op[:slots].map { |slot| STATES.fetch(slot).last }.join(", ")}])}\")"]

    def print_files(op)
      file = @file = number(:files)
      setup = [edge(FILES.fetch(op[:source]), file, op[:size]), edge(TARGETS.fetch(op[:target]), file)]
      [*setup, *lines(op[:body]), "#{@letter}.act { o#{file}.call }"]
    end

    def print_call(op) = ["#{@letter}.act { #{edge(op[:call], @file, op[:value])} }"]

    def edge(template, number, value = nil) = template.gsub(/%{(\w)}/) { { "n" => number, "v" => value }.fetch($1).to_s }

    AROUND = { "far" => ["Timeout.timeout(60) do", "end"], "certain" => ["Timeout.timeout(0.02) do", "end"],
               "lock" => ["Thread::Mutex.new.synchronize do", "end"] }.freeze

    def print_enumerator(op)
      enumerator = "e#{number(:enumerator)}"
      before = lines(op[:before])
      between = lines(op[:body])
      inner = ["yielder << 1", *lines(op[:after])]
      first, *last = AROUND[op[:around]] || (op[:around] == "guard" ? ["begin", "ensure", "  #{@letter}.note(\"#{enumerator} cleaned up\")", "end"] : nil)
      inner = [first, *indented(inner), *last] if first
      ["#{enumerator} = Enumerator.new do |yielder|", *indented([*before, *inner, "yielder << 2"]), "end",
       "#{@letter}.note(\"#{enumerator}: \#{#{enumerator}.next}\")", *between,
       *("#{@letter}.note(\"#{enumerator}: \#{#{enumerator}.next}\")" if op[:resumed])]
    end

    def fill(template, number, seconds = nil, by = nil) = template.gsub(/%{(\w+)}/) { { "n" => number, "s" => seconds, "by" => by }.fetch($1).to_s }

    def set_up(op, number)
      template = WAITS.fetch(op[:kind]).setup
      @setup << fill(template, number, nil, op[:holder]) if template
      @setup << "x#{number}, y#{number} = stage.own(*IO.pipe)" if op[:by].any? { |step| step[:do] == "reopen" }
    end

    # The tasks take turns. A common wait has its turn when each of its tasks has come to it.
    def conductor
      left = @steps.transform_values(&:dup)
      steps = []
      until left.values.all?(&:empty?)
        task, = left.find { |_, sites| sites.any? && !sites.first.last[:share] }
        next steps.concat(own_steps(task, *left[task].shift)) if task

        number = left.values.filter_map(&:first).map { |_, op| op[:share] }.min
        members = left.select { |_, sites| sites.first&.last&.fetch(:share, nil) == number }
        steps.concat(common_steps(number, members.map { |member, sites| [member, sites.shift.first] }))
      end
      steps << "stage.kill_all#{"(#{never_ending})" unless never_ending.empty?}" if @program.ending == "kill"
      return [] if steps.empty?

      orders = "  stage.take_orders" if @program.data[:conductor] == "thread" && steps.any?(/stage\.(raise_in|kill)\(/)
      [*orders, "  stage.conduct(on: :#{@program.data[:conductor]}) do", *indented(steps, 2), "  end"]
    end

    # @return [String] the tasks whose last wait nothing ends, and these waits
    def never_ending
      endless = @program.tasks.each_with_index.select { |ops, _| ops.last&.fetch(:op) == "wait" && ops.last[:by].empty? && ops.last[:seconds].nil? }
      endless.map { |_, task| "#{name(task)}: #{@steps[task].last.first}" }.join(", ")
    end

    def own_steps(task, site, op)
      wait = WAITS.fetch(op[:kind])
      op[:by].map { |step| at("#{name(task)}: #{site}", step, action(step, wait, site, name(task), 1)) }
    end

    def common_steps(number, members)
      share = @program.shares[number]
      wait = WAITS.fetch(share[:kind])
      sites = members.map { |task, site| "#{name(task)}: #{site}" }.join(", ")
      count = wait.shared == :each ? members.size : 1
      share[:by].map { |step| at(sites, step, action(step, wait, "s#{number}", nil, count)) }
    end

    def at(sites, step, action)
      after = ", after: #{step[:delay]}" if step[:delay].positive?
      from = ", from: :thread" if step[:from] == "thread" && !%w[raise kill].include?(step[:do])
      action = "stage.signal_while { #{action} }" if step[:handled]
      "stage.at(#{sites}#{after}#{from}) { #{action} }"
    end

    def action(step, wait, number, task, count)
      case step[:do]
      when "feed" then fill(count == 1 ? wait.feed : "#{count}.times { #{wait.feed} }", number)
      when "eof" then fill(wait.eof, number)
      when "close" then fill("#{wait.io}.close", number)
      when "reopen" then fill("#{wait.io}.reopen(#{wait.io.start_with?("w") ? "y" : "x"}%{n})", number)
      when "raise" then "stage.raise_in(:#{task})"
      when "kill" then "stage.kill(:#{task})"
      when "signal" then "stage.signal"
      when "gc" then "GC.start"
      end
    end
  end
end

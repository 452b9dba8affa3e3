# frozen_string_literal: true

# Runs programs one after another: a line of JSON in, a line of JSON out. Its argument is the backend, or "threads".

require "json"
require "fileutils"
require_relative "stage"
require_relative "../ruby/time_limit"

backend = ARGV.fetch(0)
backend = nil if backend == "threads"
require "reactor" if backend

replies = $stdout.dup
replies.sync = true
$stdout.reopen(File::NULL)
$stderr.reopen(ENV["REACTOR_FUZZ_LOG"] || File::NULL, "a")
Thread.report_on_exception = false

# The threads and descriptors that Ruby makes once in a process are made now.
Timeout.timeout(60) { nil }
Process.detach(Process.spawn("true")).join
Fuzz::Stage.new(backend).run(->(stage) { stage.task(:a) { sleep 0 } })

while (line = $stdin.gets)
  job = JSON.parse(line, symbolize_names: true)
  stage = Fuzz::Stage.new(backend)
  watch = Thread.new(Thread.current) do
    limit = TimeLimit.new(job[:limit])
    sleep limit.remaining until limit.over?
    over = true
    replies.puts(JSON.generate(stage.partly))
  ensure
    Process.exit!(1) if over # also if nothing reads the reply any more
  end
  outcome = stage.run(eval(job[:source]), ending: job[:ending]) # rubocop:disable Security/Eval -- it is our own program
  watch.kill.join
  replies.puts(JSON.generate(outcome))
end

# frozen_string_literal: true

# One run of one workload, in a process of its own: worker.rb ROW STYLE SCHEDULER OPERATIONS [N]. STYLE is fibers, threads or
# plain; SCHEDULER the file that makes one. Prints one line of JSON.
require "socket"
require_relative "../support"
require_relative "usage"
require_relative "run"
require_relative "workload"
require_relative "library"

name, style, scheduler, operations, point = ARGV
workload = Bench::Workload.all.fetch(name)
run = Bench::Run.new(style.to_sym, Integer(operations), point && Integer(point))
body = style == "plain" ? workload.plain : workload.body

# Threads and the scheduler's fibers alike: the body is in a task of its own, and this thread waits.
begin
  Bench.descriptors(65_536)
  Thread.report_on_exception = false
  if style == "fibers"
    made = TOPLEVEL_BINDING.eval(File.read(scheduler), scheduler)
    run.report(scheduler: made.class.name, library: Bench::Library.of(made))
    Fiber.set_scheduler(made)
  end
  work = proc do
    body.call(run)
    run.finish
  end
  case style
  when "plain" then work.call
  when "threads" then run.spawn(&work).join
  else
    run.spawn(&work)
    Fiber.set_scheduler(nil)
  end
  raise "the scheduler has ended, the workload has not"
rescue Exception => error # rubocop:disable Lint/RescueException -- whatever it is, the run has failed
  run.give_up(error)
end

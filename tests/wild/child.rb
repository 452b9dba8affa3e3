# frozen_string_literal: true

# Runs calls FROM...TO of a seed in this process: see main.rb.
#
#   child.rb BACKEND SEED FROM TO PLACE WRONG    in a folder of its own
#
# PLACE is a file of eight bytes: the number of the call that runs. WRONG gets a line for each call that has failed.

Warning[:experimental] = false
require "fileutils"

backend, seed, from, to, place, wrong = ARGV
ENV["REACTOR_BACKEND"] = backend
require "reactor"
require "reactor/async/selector"
require_relative "conductor"
require_relative "generator"

# Seldom enough for speed, often enough to name the call that did it.
CHECK_EVERY = Integer(ENV.fetch("WILD_CHECK", 250))

def run(conductor, calls, last)
  calls.each do |index, text|
    conductor.call(text) if text
    wrong = Wild::Outcome.wrong and yield "#{index} #{wrong}"
    conductor.check if ((index + 1) % CHECK_EVERY).zero? || index == last
  end
  true
rescue Wild::Conductor::Failure => e
  yield "failure #{e.message.lines.first(12).join("\\n").tr("\n", " ")}"
  Process.exit!(3)
end

map = IO::Buffer.map(File.open(place, "r+"), 8, 0)
out = File.open(wrong, "a")
generator = Wild::Generator.new(Integer(seed))
calls = (Integer(from)...Integer(to)).lazy.map do |index|
  map.set_value(:U64, 0, index)
  [index, generator.call(index)]
end
$stderr.reopen(File::NULL) unless ENV["WILD_NOISE"]
ended = Wild::Conductor.alone { |conductor| run(conductor, calls, Integer(to) - 1) { |line| out.syswrite("#{line}\n") } }
Process.exit!(ended ? 0 : 4) # 4: the conductor itself was ended

# frozen_string_literal: true

# Runs calls FROM...TO of a seed in this process: see main.rb.
#
#   child.rb TARGET SEED FROM TO PLACE OUTCOMES    in a folder of its own
#
# PLACE is a file of eight bytes: the number of the call that runs. OUTCOMES gets a line for each call.

Warning[:experimental] = false
require "fileutils"

target, seed, from, to, place, outcomes = ARGV
ENV["REACTOR_BACKEND"] = target unless target == "plain"
require "reactor"
require "reactor/async/selector"
require_relative "conductor"
require_relative "generator"

# Seldom enough for speed, often enough to name the call that did it.
CHECK_EVERY = Integer(ENV.fetch("WILD_CHECK", 250))

def run(target, generator, range, place, out, conductor)
  lines = +""
  range.each do |index|
    kind, text = generator.call(index)
    place.set_value(:U64, 0, index)
    runs = target == "plain" ? kind == :ruby : (kind != :native || target != "select")
    outcome = runs ? conductor.call(text) : "skipped"
    if Wild::Outcome.error && outcome.match?(/NoMethodError|NameError|SystemStackError|NoMemoryError|fatal|LocalJumpError|FloatDomain|ZeroDivision/)
      outcome = "#{outcome} at #{Array(Wild::Outcome.error.backtrace).first} by #{Wild::Outcome.error.message[0, 80].inspect}"
    end
    lines << index.to_s << " " << outcome << "\n"
    next unless ((index + 1) % CHECK_EVERY).zero? || index + 1 == range.end

    conductor.check
    out.syswrite(lines)
    lines = +""
  end
  true
rescue Wild::Conductor::Failure => e
  out.syswrite("#{lines}failure #{e.message.lines.first(12).join("\\n").tr("\n", " ")}\n")
  Process.exit!(3)
end

file = File.open(place, "r+")
map = IO::Buffer.map(file, 8, 0)
out = File.open(outcomes, "a")
generator = Wild::Generator.new(Integer(seed))
range = Integer(from)...Integer(to)
$stderr.reopen(File::NULL) unless ENV["WILD_NOISE"]
ended =
  if target == "plain"
    run(target, generator, range, map, out, Wild::Plain.new)
  else
    Wild::Conductor.alone { |conductor| run(target, generator, range, map, out, conductor) }
  end
Process.exit!(ended ? 0 : 4) # 4: the conductor itself was ended

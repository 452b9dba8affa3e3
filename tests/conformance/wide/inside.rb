# frozen_string_literal: true

# Runs one of CRuby's test files inside this process, and notes each test as it begins and ends. Run starts it. Environment:
#
#   WIDE_SOURCE    the sources of Ruby
#   WIDE_NOTES     the file of notes: a line of JSON for each event
#   WIDE_BACKEND   each test's body, and the code that it runs by assert_separately, runs in a fiber of a scheduler of this
#                  backend; unset: in plain Ruby
#   WIDE_SKIP      a file with the tests that are over already, one a line
#   WIDE_ONLY      a file with the only tests to run, one a line
#   REACTOR_LIB    the directory of reactor.rb

require "json"
require_relative "in_fiber" if ENV["WIDE_BACKEND"]

source = ENV.fetch("WIDE_SOURCE")
$LOAD_PATH.unshift(File.join(source, "test/lib"))
require File.join(source, "tool/test/init")

# The notes. They are written by name each time, so that a test may close every descriptor.
module Notes
  PATH = ENV.fetch("WIDE_NOTES").dup.freeze
  PROCESS = Process.pid

  class << self
    # Nothing is noted in a forked child.
    def add(**note)
      return unless Process.pid == PROCESS

      # Blocking: the notes never pass through a scheduler.
      Fiber.blocking { File.write(PATH, "#{JSON.generate(note)}\n", mode: "a") }
    end

    def describe(error) = "#{error.class}: #{error.message}".scrub("?").lines.first(12).join[0, 1000]
  end
end

# Selects the tests, and notes when each one begins and ends.
module NotedTest
  LIST = ->(name) { ENV[name]&.then { |path| File.readlines(path, chomp: true).to_h { |id| [id, true] } } }
  SKIP = LIST.("WIDE_SKIP") || {}
  ONLY = LIST.("WIDE_ONLY")

  def run(runner)
    id = "#{self.class}##{__name__}"
    return "" if SKIP[id] || (ONLY && !ONLY[id])

    Notes.add(begin: id)
    super.tap { Notes.add(end: id) }
  end

  def run_test(name)
    return super unless ENV["WIDE_BACKEND"]

    InFiber.run { super }
  end
end
Test::Unit::TestCase.prepend(NotedTest)

# Code that a test runs in a Ruby of its own runs in a fiber there.
module FiberInChild
  def assert_separately(arguments, file = nil, line = nil, code, **options)
    place = caller_locations(1, 1).first
    # A lambda, because the code may return.
    code = "require #{File.expand_path("in_fiber", __dir__).dump}; InFiber.run(&lambda do\n#{code}\nend)" unless code.match?(/^__END__$/)
    super(arguments, file || place.path, line || place.lineno, code, **options)
  end
end
Test::Unit::TestCase.prepend(FiberInChild) if ENV["WIDE_BACKEND"]

# Notes the results. A test has several if its teardown fails.
module NotedResult
  def record(suite, method, _assertions, _time, error, *)
    status = case error
             when nil then "passed"
             when Test::Unit::PendedError then "skipped"
             when Test::Unit::AssertionFailedError then "failed"
             else "error"
             end
    Notes.add(result: "#{suite}##{method}", status: status, message: (Notes.describe(error) if error))
    super
  end
end
Test::Unit::AutoRunner::Runner.prepend(NotedResult)

Test::Unit::AutoRunner.run(true, File.join(source, "test"), ["--test-order=sorted", "--tty=no", *ARGV])
Notes.add(over: true)

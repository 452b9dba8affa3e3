# frozen_string_literal: true

require_relative "helper"

# The debug gem (rdbg), which Ruby bundles, stops in fibers.
class TestDebugger < ReactorTest
  THERE = begin
    gem "debug"
    Gem.loaded_specs["debug"].version
  rescue LoadError => error
    error.message.lines.first.strip
  end

  def setup
    super
    skip "debug cannot be loaded: #{THERE}" unless THERE.is_a?(Gem::Version)
  end

  PROGRAM = <<~'RUBY'
    require "debug"
    Reactor.run do
      turns = 0
      other = Fiber.schedule { loop { sleep 0; turns += 1 } }
      Fiber.schedule do
        sleep 0.001
        before = turns
        binding.break
        number = 1
        number += 1
        puts "number #{number}, turns #{turns - before}"
        sleep 0.001
        other.kill
      end
    end
    puts "end"
  RUBY
  private_constant :PROGRAM

  # The loop stands still while the debugger waits for commands. From Ruby 3.4 on, the debugger first looks for the source in an
  # operation of the fiber, during which other fibers may run.
  def test_a_breakpoint_in_a_fiber_stops_the_thread_and_steps_by_lines
    commands, input = IO.pipe
    input << "next\nnext\np [:number, number]\ncontinue\n"
    input.close
    quiet = { "RUBY_DEBUG_NO_COLOR" => "1", "RUBY_DEBUG_NO_RELINE" => "1", "RUBYOPT" => "-W0" }
    child = run_child(PROGRAM, env: quiet, gems: true, options: { in: commands })
    assert_predicate child.status, :success?, child.err
    turns = RUBY_VERSION < "3.4" ? "0" : "\\d+"
    assert_match(/=> \[:number, 1\].*^(?:\(rdbg\) )?number 2, turns #{turns}$.*^end$/m, child.out)
  ensure
    commands&.close
  end
end

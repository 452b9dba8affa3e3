# frozen_string_literal: true

require_relative "helper"

# Every function of the extension that C calls catches its panics or cannot panic, and bin/check panics forces a panic in each
# that catches. This test reads the sources, so it finds new functions that do neither.
class TestPanicPoints < ReactorTest
  SOURCES = File.join(ROOT, "ext/reactor/src")
  FORCED = File.join(ROOT, "tests/panics/test_panics.rb")

  # What catches a panic: see ruby/panics.rs. In methods and functions, magnus does.
  CATCHES = /\b(?:panics::catch|catch_unwind)\(/

  # Functions without a catch, and why they cannot panic, or what a panic would do.
  HARMLESS = {
    "control/scheduler.rs mark" => "a panic ends the process, because an object that is not marked would be freed in use",
    "control/collectable_timeout.rs mark" => "as that of the scheduler",
    "control/watcher_marks.rs mark" => "as that of the scheduler",
    "ruby/call.rs nothing" => "returns nil",
    "ruby/call.rs run" => "calls the VM",
    "ruby/fiber.rs empty" => "returns nil",
    "ruby/thread.rs child" => "adds to a number",
    "ruby/thread.rs postponed" => "calls the VM",
    "standalone/semaphore.rs mark" => "as that of the scheduler"
  }.freeze

  # What may panic.
  PANICS = /\.unwrap\(\)|\.expect\(|\bassert|\bpanic!|\bunreachable!|\btodo!/

  Function = Struct.new(:name, :body)

  def sources = Dir[File.join(SOURCES, "**/*.rs")].to_h { |path| [path.delete_prefix("#{SOURCES}/"), File.read(path)] }

  # From the brace (or parenthesis) at or after the place to the matching one.
  def block(text, place, opening = "{", closing = "}")
    start = text.index(opening, place)
    depth = 0
    (start...text.size).each do |at|
      depth += 1 if text[at] == opening
      depth -= 1 if text[at] == closing
      return text[start..at] if depth.zero?
    end
    flunk "no end of the block at #{start}"
  end

  # Each match of the pattern, whose group 1 is a name, with the block after it.
  def functions(text, pattern)
    text.enum_for(:scan, pattern).map { Regexp.last_match }.map { |match| Function.new(match[1], block(text, match.end(0))) }
  end

  def boundaries
    sources.flat_map do |path, text|
      called_by_c = functions(text, /extern "C(?:-unwind)?" fn (\w+)/)
      of_objects = functions(text, /impl (?:magnus::)?DataTypeFunctions for (\w+)/).flat_map { |type| functions(type.body, /fn (\w+)/) }
      (called_by_c + of_objects).map { |function| ["#{path} #{function.name}", function.body] }
    end
  end

  def test_every_function_that_c_calls_catches_a_panic_or_cannot_panic
    without = boundaries.reject { |_, body| body.match?(CATCHES) }.map(&:first)
    assert_equal HARMLESS.keys.sort, without.uniq.sort
    assert_operator boundaries.size, :>, HARMLESS.size + 6
  end

  def test_functions_without_a_catch_call_nothing_that_panics
    boundaries.each { |name, body| refute_match PANICS, body, name unless body.match?(CATCHES) || name.end_with?(" mark") }
  end

  # The VM calls them as well: rb_protect.
  def test_what_the_vm_protects_calls_nothing_that_panics
    protected = sources.flat_map do |path, text|
      text.enum_for(:scan, /\bprotect\(/).map { [path, block(text, Regexp.last_match.begin(0), "(", ")")] }
    end
    assert_operator protected.size, :>, 10
    protected.each { |path, body| refute_match PANICS, body, path }
  end

  def test_the_end_of_every_object_of_rust_is_one_of_these_functions
    types = sources.values.flat_map { |text| text.scan(/#\[derive\((?:\w+, )*TypedData(?:, \w+)*\)\].*?struct (\w+)/m).flatten }
    ended = sources.values.flat_map do |text|
      functions(text, /impl (?:magnus::)?DataTypeFunctions for (\w+)/).select { |type| type.body.include?("fn free(") }.map(&:name)
    end
    assert_equal types.sort, ended.sort
    assert_operator types.size, :>, 3
  end

  def test_a_panic_is_forced_at_every_point
    points = sources.values.flat_map { |text| text.scan(/\b(?:catch|point)\(\s*"([^"]+)"/) }.flatten.uniq
    assert_includes points, "method"
    forced = File.read(FORCED)
    assert_empty(points.reject { |point| forced.match?(/(?:panic_at\(|assert_fatal |forced at |^\s+)\\?"?#{Regexp.escape(point)}\b/) })
  end
end

# frozen_string_literal: true

require_relative "helper"
require "open3"

# bin/check mutants takes many minutes and runs on demand. This test finds changes of the code that its mutants replace.
class TestMutants < ReactorTest
  def test_the_text_that_each_mutant_replaces_is_there_once
    said, status = Open3.capture2e({ "RUBY" => RbConfig.ruby }, File.join(ROOT, "bin/check"), "mutants", "--texts")
    assert status.success?, said
  end

  def test_an_unknown_mutant_is_refused
    said, status = Open3.capture2e({ "RUBY" => RbConfig.ruby }, File.join(ROOT, "bin/check"), "mutants", "--texts", "no-such-mutant")
    assert_equal [2, "unknown mutant: no-such-mutant\n"], [status.exitstatus, said]
  end
end

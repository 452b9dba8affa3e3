# frozen_string_literal: true

require_relative "helper"
require_relative "../gems/page"
require_relative "../gems/trial"

Gems.load_rows

# docs/gems.md is true: each gem that is installed here, with its server (bin/setup --gems), behaves as the page says. Other gems
# have no test. The servers are started once for all tests.
class TestGems < ReactorTest
  RESULTS = JSON.parse(File.read(Gems::Page::RESULTS)).freeze
  # A server may take longer to start than all rows together.
  SLOW = LONG ? [] : %i[rabbitmq]

  def self.trial = @trial ||= Gems::Trial.new.tap { |trial| Minitest.after_run { trial.stop } }

  # Debian builds the extensions of most gems for one Ruby.
  SHOWN = RESULTS.fetch("ruby")[/\d+\.\d+/]
  TRIED = LONG || RUBY_VERSION.start_with?("#{SHOWN}.") ? Gems::ROWS.reject { |row| SLOW.include?(row.server) || trial.absence(row) } : []

  TRIED.each do |row|
    define_method(:"test_#{row.name.tr("^a-z0-9", "_")}_#{row.verdict}") { try(row) }
  end

  def try(row)
    outcomes = {}
    outcomes[:plain] = measure(row, :plain) unless row.verdict == :setting # without its setting a row may hang; bin/check gems tries it
    outcomes[:with] = measure(row, row.remedy) if row.remedy
    assert row.true_of?(outcomes), -> { "#{row.name} is not #{row.verdict}: #{outcomes.inspect}" }
  end

  def measure(row, mode) = self.class.trial.measure(row, mode)

  def test_the_page_has_the_results_of_bin_gems
    page = File.read(Gems::Page::PATH)
    assert_equal Gems::Page.new.to_s, page[Gems::Page::TABLE]
  end

  def test_the_results_have_the_verdicts_of_the_rows
    works = RESULTS.fetch("rows").transform_values { |row| Gems::Trial::Outcome.new(overlap: row["overlap"], error: row["error"]).ok? }
    assert_equal(Gems::ROWS.to_h { |row| [row.name, row.verdict == :works] }, works)
  end
end

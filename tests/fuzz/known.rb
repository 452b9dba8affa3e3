# frozen_string_literal: true

require "json"

module Fuzz
  # Differences that have an explanation: known.json. Each entry has a reason, and regular expressions: `source` fits the
  # smallest program, `threads` and `backend` the two outcomes. An entry without one of them fits everything there.
  class Known
    FILE = File.join(__dir__, "known.json")
    KEYS = %w[reason source threads backend ruby].freeze

    def initialize(entries = JSON.parse(File.read(FILE)))
      @entries = entries.each do |entry|
        raise ArgumentError, "no reason: #{entry}" if entry["reason"].to_s.empty?
        raise ArgumentError, "unknown key: #{entry.keys - KEYS}" unless (entry.keys - KEYS).empty?
      end
    end

    # @param difference [Runner::Difference] of the smallest program
    # @return [String, nil] the reason
    def reason(difference, source)
      texts = { "source" => source, "threads" => difference.expected.to_s, "backend" => "#{difference.backend} #{difference.actual}", "ruby" => RUBY_VERSION }
      @entries.find { |entry| texts.all? { |key, text| entry[key].nil? || text.match?(Regexp.new(entry[key])) } }&.fetch("reason")
    end
  end
end

# frozen_string_literal: true

# bin/check gems: tries the rows of tests/gems/rows, prints what they did, and writes tests/gems/results.json and docs/gems.md.

require "reactor"
require_relative "page"
require_relative "trial"

Gems.load_rows
names = ARGV.reject { |argument| argument.start_with?("-") }
options = ARGV - names
if (options - ["--add"]).any? || (options.any? && names.empty?) || (names - Gems::ROWS.map(&:name)).any?
  warn "usage: bin/check gems [[--add] NAME…]", "names: #{Gems::ROWS.map(&:name).join(", ")}"
  exit(options == ["--help"] || options == ["-h"])
end
shown = JSON.parse(File.read(Gems::Page::RESULTS))
abort "docs/gems.md shows Ruby #{shown["ruby"]}, and this is #{RUBY_VERSION}: choose it by RUBY=" if options.any? && shown["ruby"].to_f != RUBY_VERSION.to_f

wrong = []
results = {}
servers = {}
Gems::Trial.run do |trial|
  (names.empty? ? Gems::ROWS : names.map { |name| Gems.find(name) }).each do |row|
    if (reason = trial.absence(row))
      puts "#{row.name}: not tried. #{reason}"
      wrong << "#{row.name} was not tried"
      next
    end
    outcomes = row.modes.to_h do |mode|
      outcome = trial.measure(row, mode)
      puts format("%-28s %-8s %2d at once  %s", row.name, mode, outcome.overlap, outcome.error)
      [%i[set offload].include?(mode) ? :with : mode, outcome]
    end
    wrong << "#{row.name} is not \"#{Gems::Page::WORDS.fetch(row.verdict)}\"" unless row.true_of?(outcomes)
    plain = outcomes[:plain]
    results[row.name] = { version: plain.version, overlap: plain.overlap, error: plain.error }.compact
    version = trial.server_version(row) and servers[trial.server_program(row)] = version
  rescue Gems::Trial::Failed, RealServer::Failed => error
    wrong << error.message
  end
end

if wrong.empty? && names.empty?
  Gems::Page.record({ ruby: RUBY_VERSION, backend: Reactor.backend, servers: servers, rows: results })
elsif wrong.empty? && options.any?
  Gems::Page.record(shown.merge("servers" => shown["servers"].merge(servers), "rows" => shown["rows"].merge(results).slice(*Gems::ROWS.map(&:name))))
end
abort wrong.join("\n") unless wrong.empty?

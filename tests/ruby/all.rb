# frozen_string_literal: true

# The whole suite in one process: ruby -w -Ilib tests/ruby/all.rb [minitest options]
# With REACTOR_STRESS=1 only the files that stay affordable with a collection at every allocation; with REACTOR_AGAIN=1
# without those that say the same on every backend: for all backends of a Ruby after the first.

ALIKE = %w[test_bench test_docs test_examples test_servers test_types].freeze
STRESS_SUBSET = %w[test_block test_fiber test_gc test_io_read_write test_io_wait test_sleep test_timeout].freeze

files = Dir[File.join(__dir__, "test_*.rb")].sort
files.select! { |file| STRESS_SUBSET.include?(File.basename(file, ".rb")) } if ENV["REACTOR_STRESS"] == "1"
files.reject! { |file| ALIKE.include?(File.basename(file, ".rb")) } if ENV["REACTOR_AGAIN"] == "1"
files.each { |file| require file }

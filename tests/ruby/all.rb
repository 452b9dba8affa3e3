# frozen_string_literal: true

# The whole suite in one process: ruby -w -Ilib tests/ruby/all.rb [minitest options]
# With REACTOR_STRESS=1 only the files that stay affordable with a collection at every allocation.

STRESS_SUBSET = %w[test_block test_fiber test_gc test_io_read_write test_io_wait test_sleep test_timeout].freeze

files = Dir[File.join(__dir__, "test_*.rb")].sort
files.select! { |file| STRESS_SUBSET.include?(File.basename(file, ".rb")) } if ENV["REACTOR_STRESS"] == "1"
files.each { |file| require file }

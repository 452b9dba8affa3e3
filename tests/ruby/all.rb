# frozen_string_literal: true

# The whole suite in one process: ruby -w -Ilib tests/ruby/all.rb [minitest options]. (bin/test runs a process per file.)

Dir[File.join(__dir__, "test_*.rb")].sort.each { |file| require file }

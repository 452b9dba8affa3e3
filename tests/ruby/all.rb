# frozen_string_literal: true

# The whole suite in one process: ruby -w -Ilib tests/ruby/all.rb [minitest options]. (bin/test runs a process per file.) On
# Windows, skips the tests listed in tests/windows/skips.

require_relative "helper"
require_relative "../windows/skips"

files = Dir[File.join(__dir__, "test_*.rb")].sort
if Reactor::VM::WINDOWS
  skips = Windows::Skips.new(File.join(__dir__, "../windows/skips"))
  files.select! { |file| skips.file?(File.basename(file, ".rb")) }
  Minitest::Test.prepend(skips.hook)
end
files.each { |file| require file }

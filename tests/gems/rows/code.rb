# frozen_string_literal: true

# Gems that run code of the program. It asks the server behind the gate in plain Ruby.

Gems.row "concurrent-ruby", requires: %w[concurrent], what: "`Concurrent::Promises.future { … }.value!`",
  call: ->(_, _) { Concurrent::Promises.future { visit }.value! }

Gems.row "minitest", requires: %w[minitest], what: "a test that starts twenty fibers",
  call: lambda { |_, i|
    context = self
    result = Class.new(Minitest::Test) { define_method(:test_it) { assert_includes context.visit_at_once, "200 OK" } }.new(:test_it).run if i.zero?
    raise result.failure if result&.failure
  }

Gems.row "rspec", requires: %w[rspec/core rspec/expectations], what: "an example that starts twenty fibers",
  call: lambda { |_, i|
    context = self
    group = RSpec::Core::ExampleGroup.describe { it { expect(context.visit_at_once).to include("200 OK") } } if i.zero?
    raise group.examples.first.exception unless group.nil? || group.run(RSpec::Core::NullReporter)
  }

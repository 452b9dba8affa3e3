# frozen_string_literal: true

require_relative "lib/reactor/version"

Gem::Specification.new do |spec|
  spec.name = "reactor"
  spec.version = Reactor::VERSION
  spec.authors = ["The reactor authors"]
  spec.summary = "A native Fiber::Scheduler: ordinary blocking Ruby becomes concurrent, unchanged"
  spec.description = "A readiness-event loop in Rust (epoll, kqueue) that registers a descriptor once, remembers what " \
                     "the kernel said and deregisters lazily, exposed to Ruby as a complete Fiber::Scheduler."
  spec.license = "MIT"
  spec.required_ruby_version = ">= 3.3"
  spec.metadata = { "rubygems_mfa_required" => "true" }

  spec.files = Dir[
    "lib/**/*.rb", "sig/**/*.rbs", "src/**/*.rs", "ext/**/*.{rb,rs,toml}",
    "benches/selector.rs", "tests/registry.rs", # named in Cargo.toml, which does not load without them
    "Cargo.toml", "Cargo.lock", "README.md", "CHANGELOG.md", "LICENSE"
  ]
  spec.require_paths = ["lib"]
  spec.extensions = ["ext/reactor/extconf.rb"]
  spec.add_dependency "rb_sys", "~> 0.9"
end

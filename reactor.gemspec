# frozen_string_literal: true

require_relative "lib/reactor/version"

Gem::Specification.new do |spec|
  spec.name = "reactor-loop" # "reactor" on RubyGems is another project
  spec.version = Reactor::VERSION
  spec.authors = ["The reactor authors"]
  spec.summary = "A native Fiber::Scheduler: ordinary blocking Ruby becomes concurrent, unchanged"
  spec.description = "A complete Fiber::Scheduler over a readiness-event loop in Rust (epoll, kqueue, io_uring, IOCP). The loop " \
                     "registers a descriptor once, remembers what the kernel reported for it, and deregisters lazily."
  spec.license = "MIT"
  spec.required_ruby_version = ">= 3.3"
  spec.required_rubygems_version = ">= 3.3"

  manifest = File.read(File.join(__dir__, "Cargo.toml"))
  repository = manifest[/^repository = "(.+)"/, 1]
  files = "#{repository}/blob/v#{spec.version}"
  spec.homepage = repository
  spec.metadata = {
    "homepage_uri" => repository, "source_code_uri" => "#{repository}/tree/v#{spec.version}", "bug_tracker_uri" => "#{repository}/issues",
    "changelog_uri" => "#{files}/CHANGELOG.md", "documentation_uri" => "#{files}/docs/getting-started.md", "rubygems_mfa_required" => "true"
  }

  # Cargo.toml loads only if the files of its targets and the manifests of its workspace are there, even if none is built.
  targets = manifest.scan(/^\[\[(test|example)\]\]\nname = "(\w+)"/)
  directories = { "test" => "tests", "example" => "examples" }
  spec.files = Dir[
    "lib/**/*.rb", "exe/*", "sig/**/*.{rbs,yaml}", "src/**/*.rs", "ext/**/*.{rb,rs,toml}", "benches/Cargo.toml",
    *targets.map { |kind, name| "#{directories.fetch(kind)}/{#{name}.rs,#{name}/main.rs}" },
    "Cargo.toml", "Cargo.lock", "README.md", "CHANGELOG.md", "LICENSE", base: __dir__
  ]
  spec.require_paths = ["lib"]
  spec.bindir = "exe"
  spec.executables = ["reactor-top"]
  spec.extensions = ["ext/reactor/extconf.rb"]
  spec.add_dependency "rb_sys", "~> 0.9"
end

# frozen_string_literal: true

require_relative "helper"
require "open3"
require "tmpdir"

# The gem as its authors build it. bin/check packages also installs and uses it.
class TestPackaging < ReactorTest
  SPECIFICATION = File.join(ROOT, "reactor.gemspec")

  def only_on_one_backend = (skip "the gem does not depend on the backend" if linux? && BACKEND != :epoll)

  def run_ruby(*arguments, environment: {}) = Open3.capture3(environment, RbConfig.ruby, *arguments, chdir: ROOT)

  def test_gem_build_gives_no_warning
    only_on_one_backend
    Dir.mktmpdir do |directory|
      out, err, status = run_ruby("-S", "gem", "build", "--strict", SPECIFICATION, "--output", File.join(directory, "reactor.gem"))
      assert_predicate status, :success?, err
      assert_equal "", err
      refute_match(/WARNING/, out)
    end
  end

  def test_the_other_gem_of_this_name_is_an_error
    only_on_one_backend
    load = ->(program) { Open3.capture3(RbConfig.ruby, "-w", "-I", File.join(ROOT, "lib"), "-e", program) }
    _, err, status = load.call('Gem.loaded_specs["reactor"] = Gem::Specification.new("reactor", "2.0.1"); require "reactor-loop"')
    refute_predicate status, :success?
    assert_match(/a different project.*\(LoadError\)/, err)
    assert_equal ["Reactor::Scheduler", ""], load.call('require "reactor-loop"; print Reactor::Scheduler').first(2)
  end

  def test_a_release_is_refused_with_the_reasons
    only_on_one_backend
    skip "rake cannot be loaded" unless run_ruby("-e", "require 'rake'").last.success?
    home = { "RELEASE" => nil, "GEM_HOST_API_KEY" => nil, "CARGO_REGISTRY_TOKEN" => nil, "HOME" => "/nonexistent", "CARGO_HOME" => "/nonexistent" }
    _, err, status = run_ruby("-S", "rake", "release", environment: home)
    refute_predicate status, :success?
    ["RELEASE=#{Reactor::VERSION} is not in the environment", "RubyGems has no key", "the registry of crates has no token"].each do |reason|
      assert_match(/no release: .*#{Regexp.escape(reason)}/, err)
    end
    refute_match(/git tag|gem push/, err)
  end

  def test_a_dry_release_prints_each_step_and_publishes_before_it_pushes
    only_on_one_backend
    skip "rake cannot be loaded" unless run_ruby("-e", "require 'rake'").last.success?
    out, err, status = run_ruby("-S", "rake", "release:dry", environment: { "RELEASE" => nil })
    assert_predicate status, :success?, err
    steps = ["cargo publish", "gem push", "cargo publish", "git tag", "git push", "no release: "]
    assert_equal steps, out.lines.filter_map { |line| line[/cargo publish|git tag|gem push|git push|no release: /] }
  end
end

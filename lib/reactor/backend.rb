# frozen_string_literal: true

# Loads the native library that was built for this Ruby.
module Reactor
  # Where the library may be: in a folder for this Ruby version if built for several versions, otherwise at the top.
  libraries = ["reactor/#{RUBY_VERSION[/\A\d+\.\d+/]}/reactor", "reactor/reactor"]

  # RubyGems builds the library when it installs the gem, but nothing builds that of a clone, even if a Gemfile names it. There a
  # broken library has to go first, because rake would take it for a current one.
  failed = lambda do |what, advice|
    require "rbconfig"
    require "shellwords"
    root = File.expand_path("../..", __dir__)
    ruby = RbConfig.ruby.shellescape
    build = "cd #{root.shellescape} && rm -f lib/#{libraries.first}.* && RUBY=#{ruby} bin/setup && #{ruby} -S rake compile"
    command = File.exist?("#{root}/Rakefile") ? build : "#{ruby} -S gem pristine reactor-loop"
    raise LoadError, "the native library of reactor #{what}\n#{advice}:\n  #{command}"
  end
  loaded = libraries.any? do |library|
    require library
    true
  rescue LoadError => error
    # If the library is absent, the error's path is the name that was required. Any other path belongs to a broken file.
    failed.("does not load on Ruby #{RUBY_VERSION}: #{error.message.lines.first.chomp}", "Build it again, for this Ruby") unless error.path == library
  end
  failed.("is not built for Ruby #{RUBY_VERSION} (#{libraries.join(" and ")} are not in the load path)", "Build it") unless loaded
end

require_relative "native/scheduler"

# The backends, and which one a new scheduler has.
module Reactor
  class << self
    # The default backend for new schedulers: REACTOR_BACKEND, else the best one on this machine.
    #
    # @return [Symbol]
    # @raise [ArgumentError] REACTOR_BACKEND names a backend that is unknown, or unavailable for the reason in the message
    def backend = Internal.choose(nil)

    # @return [Hash{Symbol => true, String}] all backends, best first: true, or the reason why the backend is unavailable here
    def backends = Internal.backends
  end

  class << Internal
    # @param wanted [Symbol, String, nil] nil: REACTOR_BACKEND, else the best backend
    # @return [Symbol] the chosen backend
    # @raise [ArgumentError] the backend is unknown, or unavailable for the reason in the message
    # @raise [TypeError] wanted is neither a name nor nil
    # @api private
    def choose(wanted)
      wanted = ENV.fetch("REACTOR_BACKEND", "").then { |name| name unless name.empty? } if wanted.nil?
      return backends.key(true) if wanted.nil?
      raise TypeError, "backend must be a Symbol or a String, not #{wanted.class}" unless Symbol === wanted || String === wanted

      name = wanted.to_sym
      case reason = backends[name]
      when true then name
      when nil then raise ArgumentError, "unknown backend #{wanted.inspect} (known: #{backends.keys.join(", ")})"
      else raise ArgumentError, "backend #{name} is not available: #{reason}"
      end
    end
  end
end

# frozen_string_literal: true

# Loads the native library that was built for this Ruby.
module Reactor
  # Libraries for several Rubies may stand side by side.
  library = "reactor/#{RUBY_VERSION[/\A\d+\.\d+/]}/reactor"
  begin
    require library
  rescue LoadError => error
    require "rbconfig"
    require "shellwords"
    # If the library is absent, the error's path is the name that was required. Any other error is that of a broken library, or of
    # one that was built for another Ruby.
    absent = error.path == library
    problem = absent ? "is not built for Ruby #{RUBY_VERSION} (#{library} is not in the load path)" : "does not load on Ruby #{RUBY_VERSION}: #{error.message.lines.first.chomp}"
    # RubyGems builds the library when it installs the gem, but nothing builds that of a clone, even if a Gemfile names it. There a
    # broken library has to go first, because rake would take it for a current one.
    root = File.expand_path("../..", __dir__)
    ruby = RbConfig.ruby.shellescape
    build = "cd #{root.shellescape} && rm -f lib/#{library}.* && RUBY=#{ruby} bin/setup && #{ruby} -S rake compile"
    command = File.exist?("#{root}/Rakefile") ? build : "#{ruby} -S gem pristine reactor-loop"
    text = "the native library of reactor #{problem}\n#{absent ? 'Build it' : 'Build it again, for this Ruby'}:\n  #{command}"
    raise LoadError, text, cause: nil
  end
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
    def backends = Internal.backends.transform_values { |answer| SystemCallError === answer ? answer.message : answer }
  end

  class << Internal
    # @param wanted [Symbol, String, nil] nil: REACTOR_BACKEND, else the best backend
    # @return [Symbol] the chosen backend
    # @raise [ArgumentError] the backend is unknown, or unavailable for the reason in the message
    # @raise [SystemCallError] descriptors or memory are short
    # @raise [TypeError] wanted is neither a name nor nil
    # @api private
    def choose(wanted)
      wanted = ENV.fetch("REACTOR_BACKEND", "").then { |name| name unless name.empty? } if wanted.nil?
      return backends.key(true) if wanted.nil?
      raise TypeError, "backend must be a Symbol or a String, not #{wanted.class}" unless Symbol === wanted || String === wanted

      name = wanted.to_sym
      case reason = backends[name]
      when true then name
      when SystemCallError then raise reason
      when nil then raise ArgumentError, "unknown backend #{wanted.inspect} (known: #{backends.keys.join(", ")})"
      else raise ArgumentError, "backend #{name} is not available: #{reason}"
      end
    end
  end
end

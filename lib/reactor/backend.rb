# frozen_string_literal: true

require_relative "portable/scheduler"

# Chooses the scheduler class to inherit from: the native one built for this Ruby, or the portable one.
#
# `REACTOR_BACKEND=select` selects the portable one without loading native code. Otherwise the portable one is used, with a
# warning, only if there is no native library. It is an error if the native library exists but does not load.
module Reactor
  # Where the library may be: in a folder for this Ruby version if built for several versions, otherwise at the top.
  LIBRARIES = Ractor.make_shareable(["reactor/#{RUBY_VERSION[/\A\d+\.\d+/]}/reactor", "reactor/reactor"])

  # All backends of the native scheduler, on any system.
  NATIVE = %i[epoll kqueue iocp uring].freeze

  # Why there is no native scheduler, or nil.
  @absence =
    if ENV["REACTOR_BACKEND"] == "select"
      "not loaded, because REACTOR_BACKEND=select was set when reactor was required"
    else
      loaded = LIBRARIES.any? do |library|
        require library
        true
      rescue LoadError => error
        # If the library is absent, the error's path is the name that was required. Any other path belongs to a broken file.
        raise LoadError, <<~MESSAGE unless error.path == library
          the native library of reactor does not load on Ruby #{RUBY_VERSION}: #{error.message}
          Rebuild it for this Ruby (bin/setup, or: gem pristine reactor-loop), or set REACTOR_BACKEND=select to do without it.
        MESSAGE
      end
      loaded ? nil : "not built for Ruby #{RUBY_VERSION} (looked for #{LIBRARIES.join(", ")})".freeze # frozen for the other Ractors
    end
  warn <<~MESSAGE if @absence && ENV["REACTOR_BACKEND"] != "select"
    reactor: the native library is #{@absence}, so the scheduler in plain Ruby is used.
    Build it (in a clone: rake install or rake compile; an installed gem: gem pristine reactor-loop), or set REACTOR_BACKEND=select.
  MESSAGE

  if @absence
    require_relative "portable/stubs"
  else
    require_relative "native/scheduler"
  end

  # The class that {Scheduler} inherits its hooks from.
  BaseScheduler = @absence ? PortableScheduler : NativeScheduler

  class << self
    # The default backend for new schedulers: REACTOR_BACKEND, else the best one on this machine.
    #
    # @return [Symbol]
    # @raise [ArgumentError] REACTOR_BACKEND names a backend that is unknown, or unavailable for the reason in the message
    def backend = Internal.choose(nil)

    # @return [Hash{Symbol => true, String}] all backends, best first: true, or the reason why the backend is unavailable here
    def backends
      native = @absence ? NATIVE.to_h { |name| [name, @absence] } : Internal.native_backends
      native.merge(select: true)
    end
  end

  class << Internal
    # @param wanted [Symbol, String, nil] nil: REACTOR_BACKEND, else the best backend
    # @return [Symbol] the chosen backend
    # @raise [ArgumentError] the backend is unknown, or unavailable for the reason in the message
    # @raise [TypeError] wanted is neither a name nor nil
    # @api private
    def choose(wanted)
      wanted = ENV.fetch("REACTOR_BACKEND", "").then { |name| name unless name.empty? } if wanted.nil?
      return Reactor.backends.key(true) if wanted.nil?
      raise TypeError, "backend must be a Symbol or a String, not #{wanted.class}" unless Symbol === wanted || String === wanted

      name = wanted.to_sym
      known = Reactor.backends
      case reason = known[name]
      when true then name
      when nil then raise ArgumentError, "unknown backend #{wanted.inspect} (known: #{known.keys.join(", ")})"
      else raise ArgumentError, "backend #{name} is not available: #{reason}"
      end
    end
  end
end

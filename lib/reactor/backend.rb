# frozen_string_literal: true

require_relative "portable/scheduler"

# Finds the scheduler class to inherit from: the native one built for this Ruby, or the portable one.
#
# `REACTOR_BACKEND=select` asks for the portable one and loads no native code. Otherwise the portable one is used only if the
# native library is absent, with a warning. A native library that does not load is an error.
module Reactor
  # Where the library may be: in a folder for this version of Ruby, if it was built for several, or at the top if it was built for one.
  LIBRARIES = Ractor.make_shareable(["reactor/#{RUBY_VERSION[/\A\d+\.\d+/]}/reactor", "reactor/reactor"])

  # The backends of the native scheduler, on some system or other.
  NATIVE = %i[epoll kqueue iocp uring].freeze

  # Why there is no native scheduler; nil if there is one.
  @absence =
    if ENV["REACTOR_BACKEND"] == "select"
      "not loaded, because REACTOR_BACKEND=select was set when reactor was required"
    else
      loaded = LIBRARIES.any? do |library|
        require library
        true
      rescue LoadError => error
        # If the library is absent, the path of the error is the name that was required. Another path is that of a broken file.
        raise LoadError, <<~MESSAGE unless error.path == library
          the native library of reactor does not load on Ruby #{RUBY_VERSION}: #{error.message}
          Rebuild it for this Ruby (bin/setup, or: gem pristine reactor-loop), or set REACTOR_BACKEND=select to do without it.
        MESSAGE
      end
      loaded ? nil : "not built for Ruby #{RUBY_VERSION} (looked for #{LIBRARIES.join(", ")})".freeze # read by other Ractors, too
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
    # The backend of a new scheduler that is given none: REACTOR_BACKEND, else the best one of this machine.
    #
    # @return [Symbol]
    # @raise [ArgumentError] REACTOR_BACKEND names a backend that is unknown or not available here; the message says why
    def backend = Internal.choose(nil)

    # @return [Hash{Symbol => true, String}] every backend there is, best first, with true or the reason why it cannot be used
    #   here
    def backends
      native = @absence ? NATIVE.to_h { |name| [name, @absence] } : Internal.native_backends
      native.merge(select: true)
    end
  end

  class << Internal
    # @param wanted [Symbol, String, nil] nil: REACTOR_BACKEND, else the best one
    # @return [Symbol] the backend that is meant
    # @raise [ArgumentError] it is unknown or unavailable; the message says why
    # @raise [TypeError] neither a name nor nil
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

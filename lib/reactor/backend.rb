# frozen_string_literal: true

require_relative "portable/scheduler"

# Finds the selector: the native one built for this Ruby, or the portable one.
#
# `REACTOR_BACKEND=select` asks for the portable one and loads no native code at all. Otherwise only an *absent* library
# falls back to it; one that is there and does not load is an error, because a silent fallback would hide it for ever.
module Reactor
  # Where the library may be: built for this very Ruby (several live side by side), or for the only one there is.
  LIBRARIES = ["reactor/#{RUBY_VERSION[/\A\d+\.\d+/]}/reactor", "reactor/reactor"].freeze
  private_constant :LIBRARIES

  # Why there is no native selector; nil if there is one.
  @absence =
    if ENV["REACTOR_BACKEND"] == "select"
      "not loaded, because REACTOR_BACKEND=select was set when reactor was required"
    else
      loaded = LIBRARIES.any? do |library|
        require library
        true
      rescue LoadError => error
        # Ruby says "cannot load such file" of the very name it was asked for; anything else is a file that is broken.
        raise LoadError, <<~MESSAGE unless error.path == library
          the native library of reactor does not load on Ruby #{RUBY_VERSION}: #{error.message}
          Build it again for this Ruby (bin/setup, or: gem pristine reactor), or set REACTOR_BACKEND=select to do without it.
        MESSAGE
      end
      loaded ? nil : "not built for Ruby #{RUBY_VERSION} (looked for #{LIBRARIES.join(", ")})".freeze # for other Ractors to read
    end

  # The class every scheduler inherits its hooks from: the native selector, or {PortableScheduler}.
  if @absence
    Selector = PortableScheduler

    # @return [nil] there is no pidfd without the native library
    # @api private
    def self.pidfd(_pid) = nil

    # @return [nil] the portable selector knows its IO objects themselves
    # @api private
    def self.io_number(_io) = nil

    # @return [false] nothing in plain Ruby keeps a thread where it is
    # @api private
    def self.stay = false

    # @return [nil] in plain Ruby, threads are equals
    # @api private
    def self.stand_back = nil

    # Runs the block while no other Ractor does. In plain Ruby nothing but a lock on a file holds between Ractors; where
    # the file system has none, the block is run all the same.
    #
    # @api private
    def self.exclusively
      lock = begin
        File.open(__FILE__).tap { |file| file.flock(File::LOCK_EX) }
      rescue SystemCallError
        nil
      end
      yield
    ensure
      lock&.flock(File::LOCK_UN) # a child forked meanwhile has the lock as well
      lock&.close
    end

    # @return [Boolean] whether this is the path of a FIFO
    # @api private
    def self.fifo?(path)
      File.pipe?(path)
    rescue ArgumentError, TypeError, EncodingError
      false # no path: whoever opens it is told
    end
  else
    require_relative "native/fiber_body"
    require_relative "native/slow_paths"
  end

  class << self
    # The backend a new scheduler uses when it is not told: REACTOR_BACKEND, else the best this machine can do.
    #
    # @return [Symbol]
    # @raise [ArgumentError] if REACTOR_BACKEND names a backend that is unknown or cannot be had here; says why
    def backend = choose(nil)

    # Every backend there is, best first, with true or the reason why it cannot be used here.
    #
    # @return [Hash{Symbol => true, String}]
    def backends
      native = @absence ? { native: @absence } : native_backends
      native.merge(select: true)
    end

    # Turns what a caller asked for into a backend that can be had.
    #
    # @param wanted [Symbol, String, nil] nil asks REACTOR_BACKEND, then takes the best
    # @return [Symbol]
    # @raise [ArgumentError] unknown or unavailable, with the reason
    # @raise [TypeError] neither a name nor nil
    # @api private
    def choose(wanted)
      wanted = ENV.fetch("REACTOR_BACKEND", "").then { |name| name unless name.empty? } if wanted.nil?
      return backends.key(true) if wanted.nil?
      raise TypeError, "a backend is a Symbol or a String, not #{wanted.class}" unless wanted.is_a?(Symbol) || wanted.is_a?(String)

      name = wanted.to_sym
      known = backends
      case reason = known[name]
      when true then name
      when nil then raise ArgumentError, "unknown backend #{wanted.inspect} (there are: #{known.keys.join(", ")})"
      else raise ArgumentError, "backend #{name} cannot be had: #{reason}"
      end
    end
  end
end

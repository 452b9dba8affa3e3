# frozen_string_literal: true

require "etc"
require "rackup/handler"
require "reactor/rack"

module Rackup
  module Handler
    # `rackup -s reactor`: see {::Reactor::Rack}.
    module Reactor
      # The options that `-O NAME=VALUE` may set besides {valid_options}: all limits.
      LIMITS = ::Reactor::Rack::DEFAULTS.keys.to_h { |name| [name.to_s.split("_").map(&:capitalize).join.to_sym, name] }.freeze
      # The other options, and those of rackup and Rails that begin with a capital.
      NAMES = [
        *LIMITS.keys, :Host, :Port, :Workers, :StopTimeout, :WorkerTimeout, :ReusePort, :Backlog, :SocketMode, :Overload, :TrustedProxies, :Settings, :Certificate, :Key,
        :AccessLog, :Silent, :DoNotReverseLookup
      ].freeze
      # The keywords of {::Reactor::Rack#run}.
      RUN = ::Reactor::Rack.instance_method(:run).parameters.filter_map { |kind, name| name if kind == :key }.freeze
      SETTINGS = "config/reactor.rb"
      private_constant :LIMITS, :NAMES, :RUN, :SETTINGS

      class << self
        # Serves the application until TERM or INT. If it cannot start, because an option is wrong or an address is in use, the program
        # ends with one line on $stderr and the status 1.
        #
        # @param options rackup's options and {valid_options}
        # @yieldparam service [::Reactor::Rack::Service]
        # @return [nil]
        # @raise [SystemExit] its cause tells why the server could not start
        def run(app, **options)
          options.each_key { |option| check(option) }
          file = options[:Settings] || (SETTINGS if File.exist?(SETTINGS))
          text = file && File.read(file)
          own = true # whether the program's own code runs, whose errors keep their backtrace
          settings = text ? eval(text, TOPLEVEL_BINDING.dup, file) : {} # rubocop:disable Security/Eval -- the program's own file
          own = false
          raise TypeError, "#{file} must return a Hash, not #{settings.class}" unless Hash === settings

          keywords = { host: default_host, **settings, **given(options), **settings.slice(:host, :port) } # which rackup always gives
          run, made = keywords.partition { |name,| RUN.include?(name) }.map(&:to_h)
          ::Reactor::Rack.new(app, **made).run(**run) do |service|
            own = true
            options[:quiet] || announce(service, run.fetch(:workers, 0))
            yield service if block_given?
          end
        rescue SystemCallError, SocketError, ArgumentError, TypeError, RangeError, NotImplementedError => error
          raise if own

          place = " (in #{file})" if settings.is_a?(Hash) && settings.each_key.any? { |name| error.message.include?(name.to_s) }
          abort("reactor does not start: #{error.message}#{place}")
        end

        # @return [Hash{String => String}] for `rackup -s reactor -h`
        def valid_options
          { "Host=HOST" => "Addresses to serve, or unix:PATH, separated by commas (default: #{default_host})",
            "Port=PORT" => "Port (default: 9292)",
            "Settings=FILE" => "A Ruby file that returns the keywords for Reactor::Rack.new and #run (default: #{SETTINGS}, if it exists)",
            "Workers=N" => "Processes that serve; auto: one per processor (default: WEB_CONCURRENCY, or 0, this one)",
            "ReusePort=true" => "A listener for each worker, among which the kernel distributes connections (default: false, one for all)",
            "Backlog=N" => "Connections that may wait in a listener's queue (default: #{Socket::SOMAXCONN})",
            "SocketMode=OCTAL" => "Permissions of UNIX sockets (default: those of the umask)",
            "WorkerTimeout=SECONDS" => "Replace a worker that computes or hangs for longer (default: no limit)",
            "StopTimeout=SECONDS" => "For answers after the signal to end (default: 10)",
            "Overload=SECONDS" => "Answer 503 when requests wait longer than this for their turn (default: all wait)",
            "TrustedProxies=LIST" => "Addresses or networks whose X-Forwarded-For and -Proto are believed (default: none)",
            "Certificate=FILE" => "PEM, for TLS, with its chain", "Key=FILE" => "PEM, the certificate's key",
            **LIMITS.to_h { |option, name| ["#{option}=#{unit(name)}", "#{name.to_s.tr('_', ' ')} (default: #{::Reactor::Rack::DEFAULTS[name]})"] } }
        end

        private

        def default_host = ENV.fetch("RACK_ENV", "development") == "development" ? "localhost" : "0.0.0.0"

        # @return [Hash] the keywords that the options set
        def given(options)
          workers = options[:Workers] || ENV["WEB_CONCURRENCY"]
          {
            **LIMITS.to_h { |option, name| [name, number(options, option)] }, host: options[:Host]&.split(","), port: options[:Port],
            workers: workers && workers(workers), stop_timeout: number(options, :StopTimeout), worker_timeout: number(options, :WorkerTimeout),
            reuse_port: boolean(options, :ReusePort), backlog: number(options, :Backlog), socket_mode: mode(options, :SocketMode),
            overload: number(options, :Overload), trusted_proxies: options[:TrustedProxies]&.split(","), tls: options[:Certificate] && tls(options[:Certificate], options[:Key])
          }.compact
        end

        # Raises for a misspelt option. Those in lower case are rackup's.
        def check(option)
          return if NAMES.include?(option)

          meant = NAMES.find { |name| name.to_s.casecmp?(option.to_s.delete("_")) }
          raise ArgumentError, "unknown option #{option}#{", did you mean #{meant}?" if meant}" if meant || option.match?(/\A[A-Z]/)
        end

        def announce(service, workers)
          limits = service.limits.to_h.map { |name, value| ", #{name} #{value}" }.join
          warn("reactor #{::Reactor::VERSION} serves #{service.url}#{" in #{workers} workers" if workers.positive?} " \
               "(Ruby #{RUBY_VERSION}, #{service.backend}#{limits}); Ctrl-C ends it")
        end

        def unit(name) = { timeout: "SECONDS", size: "BYTES" }.fetch(name.to_s[/[a-z]+\z/].to_sym, "N")

        def workers(text)
          return Etc.nprocessors if text == "auto"

          Integer(text, exception: false) || raise(ArgumentError, "Workers must be an integer or auto, not #{text.inspect}")
        end

        def number(options, name)
          text = options[name] or return
          Integer(text, exception: false) || Float(text, exception: false) || raise(ArgumentError, "#{name} must be a number, not #{text.inspect}")
        end

        def boolean(options, name)
          text = options[name]&.to_s or return
          %w[true false].include?(text) ? text == "true" : raise(ArgumentError, "#{name} must be true or false, not #{text.inspect}")
        end

        def mode(options, name)
          text = options[name] or return
          text.match?(/\A[0-7]{3,4}\z/) ? text.oct : raise(ArgumentError, "#{name} must be an octal number, not #{text.inspect}")
        end

        def tls(certificate, key)
          require "openssl"
          chain = OpenSSL::X509::Certificate.load_file(certificate)
          private_key = OpenSSL::PKey.read(File.read(key || certificate))
          OpenSSL::SSL::SSLContext.new.tap { |context| context.add_certificate(chain.shift, private_key, chain) }
        rescue OpenSSL::OpenSSLError, ArgumentError => error
          raise ArgumentError, "Certificate #{certificate}#{", Key #{key}" if key}: #{error.message}"
        end
      end
    end

    register :reactor, Reactor
  end
end

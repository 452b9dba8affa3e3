# frozen_string_literal: true

require "open3"

module Runner
  # An installed Ruby that the extension can be built for.
  class Ruby
    NAMES = %w[ruby3.3 ruby3.4 ruby4.0 ruby].freeze
    ABOUT = <<~'CODE'
      headers = File.exist?(File.join(RbConfig::CONFIG["rubyhdrdir"].to_s, "ruby.h"))
      print RUBY_VERSION if headers && (RUBY_VERSION.split(".").first(2).map(&:to_i) <=> [3, 3]) >= 0
    CODE
    private_constant :ABOUT

    attr_reader :command, :version

    class << self
      # Each version once, by the first name that finds it; the oldest first.
      def all = names.filter_map { |name| find(name) }.uniq(&:version).sort_by { |ruby| Gem::Version.new(ruby.version) }

      private

      def names = ENV["RUBY"] ? ENV["RUBY"].split : NAMES

      def find(name)
        version, status = Open3.capture2e(name, "-e", ABOUT)
        new(name, version) if status.success? && !version.empty?
      rescue SystemCallError
        nil
      end
    end

    def initialize(command, version)
      @command = command
      @version = version
    end

    def name = "ruby #{version}"

    # Whether it has these libraries.
    def loads?(libraries) = system(command, "-W0", *libraries.map { |library| "-r#{library}" }, "-e", "", %i[out err] => File::NULL)

    # The folder that minitest is loaded from.
    def minitest = ask("minitest", %q(puts Gem::Specification.find_by_name("minitest").full_require_paths.first)).first

    # The backends that work here, the default first. Call it after the extension was built.
    def backends
      ask("reactor", "puts [Reactor.backend, *Reactor.backends.select { |_, answer| answer == true }.keys].uniq")
    end

    private

    # The lines that the code prints when the library is loaded.
    def ask(library, code)
      output, status = Open3.capture2(command, "-Ilib", "-r#{library}", "-e", code)
      raise "#{name} cannot load #{library}" unless status.success?

      output.split("\n")
    end
  end
end

# frozen_string_literal: true

require "rbconfig"

module Bench
  # Where the Rust programs are: the baseline, and the load.
  EXAMPLES = File.expand_path(ENV.fetch("REACTOR_EXAMPLES", "target/release/examples"), File.expand_path("../..", __dir__))

  # What does the work: threads, plain Ruby, reactor on one backend, another library's scheduler (a peer), or the baseline.
  #
  # kind: :threads, :plain, :reactor, :peer or :baseline; most: the largest N it is asked for, why: the reason.
  Target = Struct.new(:name, :label, :kind, :scheduler, :environment, :most, :why, keyword_init: true) do
    def ours? = kind == :reactor

    # Whether a failure is ours to answer for.
    def trusted? = kind != :peer

    # The command of one run; the scale of it is in the number of operations.
    def command(workload, operations, point, ruby)
      return [Target::BASELINE, workload.name, operations.to_s, *point&.to_s] if kind == :baseline

      style = { threads: "threads", plain: "plain" }.fetch(kind, "fibers")
      [*ruby, File.join(__dir__, "worker.rb"), workload.name, style, scheduler.to_s, operations.to_s, *point&.to_s]
    end

    # Why this target does not run a workload at a size; nil if it does.
    def refusal(workload, point)
      above, reason = workload.without[kind.to_s]
      return reason if above && (point || 0) >= above
      return "no baseline is written for it" if kind == :baseline && !workload.baseline
      return "needs a scheduler" if kind == :plain && !workload.plain

      why if most && point && point > most && workload.axis != "bytes per answer"
    end
  end

  # The targets there are, by the names the command line uses.
  class Target
    DIRECTORY = File.expand_path("../schedulers", __dir__)
    BASELINE = File.join(EXAMPLES, "baseline")

    class << self
      # Every target that needs no other library.
      #
      # @param backends [Hash] see Reactor.backends
      def own(backends)
        usable = backends.select { |_, answer| answer == true }.keys
        [new(name: "threads", label: "threads", kind: :threads, most: 1_000, why: "a thread for each"),
         new(name: "threads_mn", label: "threads, M:N", kind: :threads, environment: { "RUBY_MN_THREADS" => "1" }, most: 1_000, why: "a thread for each"),
         new(name: "plain", label: "Ruby alone", kind: :plain),
         *usable.map { |backend| reactor(backend) },
         new(name: "baseline", label: "baseline", kind: :baseline)]
      end

      # Another library's scheduler.
      #
      # @param text [String] the name of a file in bench/schedulers, the path of a file like those, or NAME=EXPRESSION
      #
      # @param scratch [String] the directory for the file an expression is written to
      # @raise [ArgumentError] if there is none
      def peer(text, scratch)
        name, expression = text.split("=", 2)
        file = File.join(DIRECTORY, "#{text}.rb")
        if expression
          file = File.join(scratch, "#{name.gsub(/\W/, '_')}.rb")
          File.write(file, "#{expression}\n")
        elsif File.file?(text)
          file = File.expand_path(text)
          name = File.basename(text, ".rb")
        elsif !File.file?(file)
          raise ArgumentError, "no scheduler #{text.inspect}: name one of #{known.join(', ')}, a Ruby file that ends in one, " \
                               "or NAME=EXPRESSION"
        end
        new(name: name, label: name, kind: :peer, scheduler: file)
      end

      # The names of other libraries' schedulers in bench/schedulers.
      def known = (Dir.children(DIRECTORY).map { |child| File.basename(child, ".rb") } - ["reactor"]).sort

      private

      def reactor(backend)
        new(name: backend.to_s, label: "reactor #{backend}", kind: :reactor, scheduler: File.join(DIRECTORY, "reactor.rb"),
            environment: { "REACTOR_BACKEND" => backend.to_s },
            most: (1_000 if backend == :poll), why: "each poll looks at every descriptor")
      end
    end
  end
end

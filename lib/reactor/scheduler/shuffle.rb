# frozen_string_literal: true

module Reactor
  # `REACTOR_SHUFFLE=17` in the environment: in every scheduler chance decides which of the ready fibers runs next, by this seed. What is
  # no number stands for a seed that is drawn. If the process fails, the seed is written to $stderr. Loaded only if it is asked for.
  #
  # @api private
  module Shuffle
    SEED = Integer(ENV.fetch("REACTOR_SHUFFLE"), exception: false) || Random.new_seed % (1 << 32)

    def initialize(...)
      super
      shuffle(SEED)
    end

    pid = Process.pid
    # Test frameworks run the tests in an at_exit block of their own, which was not there yet: so it runs before this one.
    at_exit { $stderr.puts "REACTOR_SHUFFLE=#{SEED}" if $! && Process.pid == pid && !($!.is_a?(SystemExit) && $!.success?) }
  end
end

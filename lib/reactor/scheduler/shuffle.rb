# frozen_string_literal: true

module Reactor
  # With `REACTOR_SHUFFLE=17` in the environment, every scheduler picks the next ready fiber at random, with this seed. If the
  # value is not a number, the seed is random. If the process fails, the seed is written to $stderr. This file is loaded only when
  # REACTOR_SHUFFLE is set.
  #
  # @api private
  module Shuffle
    SEED = Integer(ENV.fetch("REACTOR_SHUFFLE"), exception: false) || Random.new_seed % (1 << 32)

    def initialize(...)
      super
      shuffle(SEED % (1 << 64))
    end

    pid = Process.pid
    # Test frameworks run the tests in an at_exit block registered later than this one, so the tests run first.
    at_exit { $stderr.puts "REACTOR_SHUFFLE=#{SEED}" if $! && Process.pid == pid && !($!.is_a?(SystemExit) && $!.success?) }
  end
end

# frozen_string_literal: true

module Reactor
  # With `REACTOR_SHUFFLE=17` in the environment, every scheduler picks the next ready fiber at random, with this seed. If the
  # value is not a number, the seed is random, and is written to $stderr. This file is loaded only when REACTOR_SHUFFLE is set.
  #
  # @api private
  module Shuffle
    SEED = Integer(ENV.fetch("REACTOR_SHUFFLE"), exception: false) || (Random.new_seed % (1 << 32)).tap do |drawn|
      $stderr.puts "REACTOR_SHUFFLE=#{drawn}"
    end

    def initialize(...)
      super
      shuffle(SEED % (1 << 64))
    end
  end
end

# frozen_string_literal: true

module Reactor
  module Patches
    # Prepended to Process's singleton class. Before Ruby 4.0, a forked child inherits its parent's scheduler. The child loses
    # it here, so that it is exactly Ruby without a scheduler: no hook is called in it.
    #
    # @api private
    module ForkedChild
      def self.needed? = Process.respond_to?(:fork)

      # Kernel#fork, Process.fork and IO.popen with "-" call it.
      def _fork = super.tap { |pid| Schedulers.leave_parents if pid.zero? }

      def daemon(...) = super.tap { Schedulers.leave_parents }
    end
  end
end

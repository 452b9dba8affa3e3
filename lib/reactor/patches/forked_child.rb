# frozen_string_literal: true

module Reactor
  module Patches
    # Of Process's singleton class. Before Ruby 4.0, a forked child inherits its parent's scheduler. It is removed here,
    # so the child behaves exactly like Ruby without a scheduler: no hook is called in it.
    #
    # @api private
    module ForkedChild
      def self.needed? = Process.respond_to?(:fork)

      # Called by Kernel#fork, Process.fork and IO.popen with "-".
      def _fork = reactor_process__fork.tap { |pid| Schedulers.leave_parents if pid.zero? }

      def daemon(...) = reactor_process_daemon(...).tap { Schedulers.leave_parents }
    end
  end
end

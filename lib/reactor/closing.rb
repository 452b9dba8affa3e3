# frozen_string_literal: true

module Reactor
  # Ruby 3.3 and 3.4 tell no scheduler that an IO is being closed: fibers that wait for it would wait for ever, or for
  # whatever descriptor gets its number next. So on these, from the first {Scheduler} on, IO#close first tells the
  # schedulers of its Ractor, which raise IOError ("stream closed in another thread") in just the fibers that wait for
  # this very object, as Ruby 4.0 does by itself. It takes one look-up per scheduler, however many fibers wait for other
  # things. A program that makes no scheduler keeps IO as it is.
  module Closing
    # Where a Ractor keeps its schedulers; those that nobody else knows any more drop out.
    KEY = :__reactor_schedulers__
    private_constant :KEY

    # @return [nil]
    def close
      Closing.announce(self) unless closed?
      super
    end

    class << self
      # Ruby 4.0 knows Fiber::Scheduler#fiber_interrupt.
      #
      # @api private
      def needed? = RUBY_VERSION < "4.0"

      # @api private
      def register(scheduler)
        return unless needed?

        IO.prepend(self) unless IO.include?(self)
        schedulers = Ractor.current[KEY] ||= ObjectSpace::WeakMap.new
        schedulers[scheduler] = true
      end

      # @api private
      def announce(io)
        Ractor.current[KEY]&.each_key { |scheduler| scheduler.io_closing(io) }
      end
    end
  end
end

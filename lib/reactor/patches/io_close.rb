# frozen_string_literal: true

module Reactor
  # Ruby 3.3 and 3.4 tell no scheduler that an IO is being closed, and 4.0 does not tell of those in IO.select: fibers that
  # wait for it would wait for ever, or for whatever descriptor gets its number next. So from the first {Scheduler} on,
  # IO#close first tells the schedulers of its Ractor, which raise IOError ("stream closed in another thread") in just the
  # fibers that wait for this very object. It takes one look-up per scheduler, however many fibers wait for other things.
  # (What Ruby 4.0 then tells of the same fibers comes too late and is dropped.) A program that makes no scheduler keeps
  # IO as it is.
  module Closing
    # Where a Ractor keeps its schedulers; those that nobody else knows any more drop out.
    KEY = :__reactor_schedulers__
    private_constant :KEY

    # From Ruby 4.0 on the VM waits until the fibers it tells have left the IO. Where the closer is the blocking fiber of
    # their own thread, nobody could let them: so they are given their turn before.
    WAITED_FOR = RUBY_VERSION >= "4.0"
    private_constant :WAITED_FOR

    # @return [nil]
    def close
      if !closed? && Closing.announce(self) && WAITED_FOR && Fiber.current.blocking?
        Fiber.scheduler&.yield # those who were told stand in front of us
      end
      super
    end

    class << self
      # @api private
      def install = IO.prepend(self)

      # @api private
      def register(scheduler)
        schedulers = Ractor.current[KEY] ||= ObjectSpace::WeakMap.new
        schedulers[scheduler] = true
      end

      # @return [Symbol, nil] :told if somebody waits for it
      # @api private
      def announce(io)
        told = nil
        each_scheduler do |scheduler|
          sleep 0.001 while (answer = scheduler.io_closing(io)) == :busy
          told ||= answer
        end
        told
      end

      # The schedulers of this Ractor.
      #
      # @api private
      def each_scheduler(&) = Ractor.current[KEY]&.each_key(&)
    end
  end
end

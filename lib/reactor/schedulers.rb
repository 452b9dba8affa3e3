# frozen_string_literal: true

module Reactor
  # Finds this library's schedulers: the current fiber's, and all those of the current Ractor.
  #
  # @api private
  module Schedulers
    # Included by every scheduler class of this library, to tell its schedulers from those of other libraries.
    module Member
      private

      # Whether the calling fiber is non-blocking and has this scheduler.
      def current? = Fiber.current_scheduler.equal?(self)
    end

    class << self
      # @return [Member, nil] the scheduler of the current fiber; nil if the fiber is blocking, or has another library's scheduler
      def current
        scheduler = Fiber.current_scheduler
        scheduler if scheduler.is_a?(Member)
      end

      # @param scheduler [#prepare_close, #replaced] is told of each IO that is closed or reopened in this Ractor
      def register(scheduler)
        # The map is weak, so it keeps no scheduler alive.
        map = Internal.schedulers || ObjectSpace::WeakMap.new
        map[scheduler] = true
        Internal.schedulers = map
      end

      # Removes the scheduler explicitly, because a fiber that waits in IO#close holds a list of all registered schedulers and
      # keeps them alive.
      #
      # @param scheduler [#prepare_close, #replaced] has ended
      def unregister(scheduler)
        map = Internal.schedulers or return
        map.delete(scheduler)
        Internal.schedulers = map
      end

      # Yields every scheduler of this Ractor.
      def each(&) = Internal.schedulers&.each_key(&)

      # @return [Array<Member>] a copy, because another thread may make a scheduler meanwhile
      def list = Internal.schedulers&.keys || []
    end
  end
end

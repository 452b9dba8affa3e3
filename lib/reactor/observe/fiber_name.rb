# frozen_string_literal: true

module Reactor
  # The name of a fiber in reports, and the place of the block that it runs. The name does not stand in Fiber#storage, because Ruby lets
  # no other fiber read that.
  #
  # @api private
  module FiberName
    NAME = :@__reactor_name
    # Paths of this library begin so.
    OWN = "#{File.dirname(__dir__)}/".freeze
    private_constant :NAME

    class << self
      # @return [String, nil]
      def of(fiber) = fiber&.instance_variable_get(NAME)

      # @param name [String, nil]
      def set(fiber, name) = fiber.instance_variable_set(NAME, name)

      # @return [String, nil] where the program's block stands that the fiber runs; nil unless one of this library's schedulers has made it,
      #   or once it has ended
      def birthplace(fiber)
        return unless fiber&.alive?

        block = nil
        Schedulers.each { |scheduler| block ||= scheduler.block_of(fiber) if scheduler.is_a?(Schedulers::Member) }
        place_of(block)&.join(":")
      end

      # A block of this library that runs one of the program's has that in its variable `block`.
      #
      # @param block [Proc, Watcher, nil]
      # @return [Array(String, Integer), nil] path and line
      def place_of(block)
        place = block&.source_location
        return place unless Proc === block && place&.first&.start_with?(OWN)

        scope = block.binding
        inner = scope.local_variable_get(:block) if scope.local_variable_defined?(:block)
        (place_of(inner) unless inner.equal?(block)) || place
      end

      # @return [String] for a report: its name, and where it was made; itself, if it has no name
      def describe(fiber)
        return "the root fiber" unless fiber

        name = of(fiber)
        return fiber.inspect unless name

        place = birthplace(fiber)
        "fiber #{name.inspect}#{" made at #{place}" if place}"
      end
    end
  end

  class << self
    # Names the current fiber in dumps, reports of stalls and deadlocks, and `reactor-top`.
    #
    # @param name [#to_s, nil] nil: no name
    # @return the name
    def fiber_name=(name)
      FiberName.set(Fiber.current, name&.to_s)
    end

    # @param fiber [Fiber]
    # @return [String, nil] the name that the fiber was given
    def fiber_name(fiber = Fiber.current) = FiberName.of(fiber)
  end
end

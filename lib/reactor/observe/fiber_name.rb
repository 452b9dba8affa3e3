# frozen_string_literal: true

module Reactor
  # The name of a fiber in reports. It does not stand in Fiber#storage, because Ruby lets no other fiber read that.
  #
  # @api private
  module FiberName
    NAME = :@__reactor_name
    # The scheduler sets it, to the place of the block that the fiber runs, if it has been asked to by `keep_births`.
    BIRTH = :@__reactor_birth
    private_constant :NAME, :BIRTH

    class << self
      # @return [String, nil]
      def of(fiber) = fiber&.instance_variable_get(NAME)

      # @param name [String, nil]
      def set(fiber, name) = fiber.instance_variable_set(NAME, name)

      # @return [String, nil] where the block stands that the fiber runs; nil unless its scheduler has +birthplaces: true+
      def birthplace(fiber) = fiber&.instance_variable_get(BIRTH)&.join(":")

      # The current fiber runs this block of the program, and was made with one of this library. Does nothing unless its scheduler has
      # +birthplaces: true+.
      #
      # @param block [Proc]
      def born_with(block)
        fiber = Fiber.current
        fiber.instance_variable_set(BIRTH, block.source_location) if fiber.instance_variable_defined?(BIRTH)
      end

      # @return [String] for a report: its name, if it has one, or else itself, and where it was made, if that is known
      def describe(fiber)
        return "the root fiber" unless fiber

        name = of(fiber)
        place = birthplace(fiber)
        "#{name ? "fiber #{name.inspect}" : fiber.inspect}#{" made at #{place}" if place}"
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

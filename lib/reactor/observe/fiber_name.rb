# frozen_string_literal: true

module Reactor
  # What reports call a fiber. Fiber#storage is not used for it, because Ruby lets no other fiber read it.
  #
  # @api private
  module FiberName
    NAME = :@__reactor_name
    BIRTHPLACE = :@__reactor_birthplace
    private_constant :NAME, :BIRTHPLACE

    class << self
      # @return [String, nil]
      def of(fiber) = fiber&.instance_variable_get(NAME)

      # @param name [String, nil]
      def set(fiber, name)
        fiber.instance_variable_set(NAME, name)
      end

      # @return [String, nil] where Fiber.schedule was called; see {Birthplaces}
      def birthplace(fiber) = fiber&.instance_variable_get(BIRTHPLACE)

      # @return [String] for a report: its name, if it has one, or else itself, and where it was made, if that is known
      def describe(fiber)
        return "the root fiber" unless fiber

        name = of(fiber)
        place = birthplace(fiber)
        "#{name ? "fiber #{name.inspect}" : fiber.inspect}#{" made at #{place}" if place}"
      end
    end

    # Prepended to the singleton class of a scheduler with +birthplaces: true+.
    module Birthplaces
      # @return [Fiber]
      def fiber(*arguments, **options, &block)
        place = caller_locations(1, 4).find { |frame| frame.path && !frame.path.start_with?("<internal:") }&.then { |frame| "#{frame.path}:#{frame.lineno}" }
        super(*arguments, **options) do |*given|
          Fiber.current.instance_variable_set(BIRTHPLACE, place)
          block.call(*given)
        end
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

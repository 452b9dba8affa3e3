# frozen_string_literal: true

module Reactor
  # The name of a fiber in reports, and where the block it runs is defined. The name is not kept in Fiber#storage, because Ruby
  # lets no other fiber read it there.
  #
  # @api private
  module FiberName
    NAME = :@__reactor_name
    # Prefix of this library's paths.
    OWN = "#{File.dirname(__dir__)}/".freeze
    # A place in this library, in the `inspect` of a fiber.
    OWN_PLACE = / #{Regexp.escape(OWN)}\S+:\d+(?= \()/
    private_constant :NAME, :OWN_PLACE

    class << self
      # @return [String, nil]
      def of(fiber) = fiber&.instance_variable_get(NAME)

      # @param name [String, nil]
      def set(fiber, name) = fiber.instance_variable_set(NAME, name)

      # @return [String, nil] where the program's block that the fiber runs is defined; nil if the fiber has ended or was not made
      #   by one of this library's schedulers
      def birthplace(fiber)
        return unless fiber&.alive?

        block = nil
        Schedulers.each { |scheduler| block ||= scheduler.block_of(fiber) if scheduler.is_a?(Schedulers::Member) }
        place_of(block)&.join(":")
      end

      # If this library made the block, the local variable `block` in it is the program's block.
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

      # @return [String] for a report: the fiber's name and {birthplace}, or if it has no name, Ruby's `inspect` of it with that place
      def describe(fiber)
        return "the root fiber" unless fiber

        name, place = of(fiber), birthplace(fiber)
        return "fiber #{name.inspect}#{" made at #{place}" if place}" if name

        Fiber.instance_method(:inspect).bind_call(fiber).sub(OWN_PLACE) { " #{place}" if place }
      end
    end
  end

  class << self
    # Names the current fiber in dumps, in reports of stalls and deadlocks, and in `reactor-top`.
    #
    # @param name [#to_s, nil] nil: no name
    # @return the name
    def fiber_name=(name)
      FiberName.set(Fiber.current, name&.to_s)
    end

    # @param fiber [Fiber]
    # @return [String, nil] the name of the fiber
    def fiber_name(fiber = Fiber.current) = FiberName.of(fiber)
  end
end

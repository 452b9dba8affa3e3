# frozen_string_literal: true

module Reactor
  # Questions about objects that a program has passed. Such an object may inherit from BasicObject, and then has no `is_a?`, `nil?`,
  # `class` or `respond_to?`. Its class is compared by Module#===, as Ruby's own methods look at it.
  #
  # @api private
  module Arguments
    class << self
      # @return [Class] also of a BasicObject
      def class_of(object) = Kernel.instance_method(:class).bind_call(object)

      # @return [Boolean] whether Ruby's implicit conversions would call this method, public or private: the object has it, and its
      #   own respond_to? does not deny it
      def responds?(object, name)
        return false if Kernel === object && !object.respond_to?(name, true)

        Kernel.instance_method(:respond_to?).bind_call(object, name, true)
      end

      # Converts what Ruby's methods in C take for a `long`. Array#rotate is such a method, and raises their errors.
      #
      # @param number [Numeric, #to_int]
      # @return [Integer] of at most 64 bits
      # @raise [TypeError] it has no to_int
      # @raise [RangeError] it does not fit
      def long(number)
        case number
        when Integer then number.bit_length < 64 ? number : [].rotate(number)
        when Float then [].rotate(number) && number.to_i
        else
          integer = Integer.try_convert(number)
          integer ? long(integer) : [].rotate(number)
        end
      end

      # The same for what they take for an `int`. Signal.signame is such a method.
      #
      # @param number [Numeric, #to_int]
      # @return [Integer] of at most 32 bits
      # @raise [TypeError] it has no to_int
      # @raise [RangeError] it does not fit
      def int(number) = long(number).tap { |integer| Signal.signame(integer) }
    end
  end
end

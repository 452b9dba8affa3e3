# frozen_string_literal: true

module Reactor
  module Patches
    # Shows fibers made by this library with the location of the program's block instead of a line of this library. The location
    # is determined only here, so that making a fiber costs no more. An ended fiber has lost it.
    module FiberInspect
      OWN_LINE = / #{Regexp.escape(FiberName::OWN)}\S+:\d+(?= \()/
      private_constant :OWN_LINE

      # @return [String]
      def inspect = FiberInspect.shown(self, reactor_fiber_inspect)

      # @return [String]
      def to_s = FiberInspect.shown(self, reactor_fiber_to_s)

      def self.shown(fiber, text) = text.sub(OWN_LINE) { (place = FiberName.birthplace(fiber)) ? " #{place}" : "" }
    end
  end
end

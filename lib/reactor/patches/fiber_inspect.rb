# frozen_string_literal: true

module Reactor
  module Patches
    # A fiber that this library has made is shown with the place of the program's block, and not with a line of this library. That place is
    # only looked for here, so making a fiber costs nothing more. A fiber that has ended no longer has it.
    module FiberInspect
      OWN_LINE = / #{Regexp.escape(FiberName::OWN)}\S+:\d+(?= \()/
      private_constant :OWN_LINE

      # @return [String]
      def inspect
        super.sub(OWN_LINE) { (place = FiberName.birthplace(self)) ? " #{place}" : "" }
      end

      # @return [String]
      def to_s = inspect
    end
  end
end

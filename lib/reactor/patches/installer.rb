# frozen_string_literal: true

module Reactor
  # Puts modules before Ruby's own methods: each once in the life of a process, however many Ractors make their first
  # scheduler at the same moment. Module#prepend is not made for that: where two come to one class at once, a module may
  # be lost, or Ruby crashes. So one Ractor does it, and the others go on when it is done.
  #
  # @api private
  module Installation
    class << self
      # @param modules [Array<#install>] that can be installed twice
      # @return [void]
      def of(*modules)
        return if modules.all? { |mod| installed?(mod) }

        # Blocking: who waits for another Ractor waits for it alone. And who has begun is not stopped half-way.
        Thread.handle_interrupt(Object => :never) do
          Fiber.blocking { Reactor.exclusively { modules.each { |mod| install(mod) } } }
        end
      end

      private

      # Modules can hold nothing but constants that other Ractors may read.
      def installed?(mod) = mod.const_defined?(:INSTALLED, false)

      def install(mod)
        return if installed?(mod)

        mod.install
        mod.const_set(:INSTALLED, true)
        mod.private_constant(:INSTALLED)
      end
    end
  end
end

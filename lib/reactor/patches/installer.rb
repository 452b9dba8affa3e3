# frozen_string_literal: true

module Reactor
  module Patches
    # Installs each set of patches once in the life of a process, also if several Ractors make their first scheduler at the
    # same moment. Module#prepend is not safe there: if two Ractors prepend to one class at once, a module may be lost, or
    # Ruby crashes. So one Ractor installs, and every other Ractor waits until it has.
    #
    # @api private
    module Installer
      class << self
        # @param sets [Array<Module>] each responds to install, which may be called twice
        # @return [void]
        def install(*sets)
          return if sets.all? { |set| installed?(set) }

          # In a blocking fiber, because the wait for another Ractor must not run this Ractor's fibers. Interrupts are
          # deferred, because a set that is installed half-way would stay so.
          Thread.handle_interrupt(Object => :never) do
            Fiber.blocking { Internal.exclusively { sets.each { |set| install_once(set) } } }
          end
        end

        private

        # The mark is a constant, because other Ractors can read nothing else of a module.
        def installed?(set) = set.const_defined?(:INSTALLED, false)

        def install_once(set)
          return if installed?(set)

          set.install
          set.const_set(:INSTALLED, true)
          set.private_constant(:INSTALLED)
        end
      end
    end
  end
end

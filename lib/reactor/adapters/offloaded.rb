# frozen_string_literal: true

require_relative "../../reactor"

module Reactor
  # Wraps methods of gems that wait in C.
  module Adapters
    # Makes workers run these methods when a fiber of a scheduler calls them. Nothing changes in programs and fibers without a
    # scheduler.
    #
    # @param owner [Class]
    # @param methods [Array<Symbol>]
    # @return [void]
    def self.offload(owner, *methods)
      calls = Module.new do
        methods.each do |name|
          define_method(name) { |*arguments, **options, &block| Reactor.offload { super(*arguments, **options, &block) } }
          private(name) if owner.private_method_defined?(name)
        end
      end
      owner.prepend(calls)
    end
  end
end

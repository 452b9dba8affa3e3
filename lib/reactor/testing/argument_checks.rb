# frozen_string_literal: true

require_relative "../checks"
require_relative "confinement"

module Reactor
  module Testing
    # Checks what the tests pass, before a world takes any descriptors.
    #
    # @api private
    module ArgumentChecks
      class << self
        # Checks the arguments of {Testing.simulate}.
        #
        # @raise [TypeError, ArgumentError, RangeError]
        def check(seed, at, limit: nil, yields: nil, faults: nil, allow: [])
          Checks.count(:seed, seed, 0)
          raise TypeError, "at must be a Time or seconds, not #{at.inspect}" unless Time === at || number?(at)

          Checks.seconds(:until, limit)
          { yields: yields, faults: faults }.each { |name, most| Checks.count(name, most, 0) if most }
          return if Array === allow && (allow - Confinement::REFUSED).empty?

          raise ArgumentError, "allow must be an Array of #{Confinement::REFUSED.map(&:inspect).join(", ")}, not #{allow.inspect}"
        end

        # Checks the arguments of {World#link}.
        #
        # @return [Range<Float>] the latency
        def link(latency, shares)
          shares.each do |name, share|
            raise ArgumentError, "#{name} must be in 0..1, not #{share.inspect}" unless number?(share) && share.between?(0, 1)
          end
          least, most = Range === latency ? [latency.begin, latency.end] : [latency, latency]
          return least.to_f..most.to_f if number?(least) && number?(most) && least >= 0 && most >= least

          raise ArgumentError, "latency must be seconds or a range of seconds, not #{latency.inspect}"
        end

        # Checks the name of a host. A name and an address must differ, because programs use both.
        def host_name(name)
          return if String === name && name.match?(/[^\d.:]/) && name != "localhost"

          raise ArgumentError, "a host's name must be a String like \"bank\", not #{name.inspect}"
        end

        private

        def number?(value) = Numeric === value && value.real? && value.finite?
      end
    end
    private_constant :ArgumentChecks
  end
end

# frozen_string_literal: true

require "ipaddr"

module Reactor
  class Rack
    # The proxies whose word on the client is taken: its address (X-Forwarded-For) and scheme (X-Forwarded-Proto).
    #
    # @api private
    class Proxies
      # @param networks [String, Array<String>] addresses and networks, such as 10.0.0.0/8
      # @raise [ArgumentError] one of them is neither
      def initialize(networks)
        @networks = Array(networks).map { |network| IPAddr.new(network) }
      rescue ArgumentError
        raise ArgumentError, "trusted_proxies must be addresses or networks, not #{networks.inspect}"
      end

      # Puts into the environment what a proxy says.
      def believe(env)
        return unless trust?(env["REMOTE_ADDR"])

        address = client(env["HTTP_X_FORWARDED_FOR"])
        env["REMOTE_ADDR"] = address if address
        scheme = env["HTTP_X_FORWARDED_PROTO"]&.split(",")&.last&.strip
        secure(env) if scheme&.casecmp?("https")
      end

      private

      # @return [String, nil] the last address that is no proxy's; the first if all are. What precedes it could be invented.
      def client(forwarded)
        addresses = forwarded&.split(",") or return
        address = nil
        addresses.reverse_each do |named|
          address = address_in(named.strip) or return
          return address unless trust?(address)
        end
        address
      end

      def secure(env)
        env["rack.url_scheme"] = "https"
        env["HTTPS"] = "on"
        env["SERVER_PORT"] = "443" unless env["HTTP_HOST"]&.match?(/:\d+\z/)
      end

      # @return [String, nil] the address in one form, without the port that some proxies name
      def address_in(named)
        address = named[/\A\[([^\]]+)\](?::\d+)?\z/, 1] || named[/\A([\d.]+):\d+\z/, 1] || named
        IPAddr.new(address).native.to_s unless address.include?("/")
      rescue ArgumentError
        nil
      end

      def trust?(address)
        address = IPAddr.new(address).native
        @networks.any? { |network| network.include?(address) }
      rescue ArgumentError
        false # no address, such as that of a link with its interface
      end
    end
    private_constant :Proxies
  end
end

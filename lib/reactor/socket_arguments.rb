# frozen_string_literal: true

require "socket"

module Reactor
  # Classifies the arguments of Ruby's socket methods (hosts, services, names of constants) without using the network. Strings may
  # have any encoding and be invalid in it, so only their bytes are examined.
  #
  # @api private
  module SocketArguments
    # Matches most addresses that Ruby parses without the resolver.
    PLAIN_ADDRESS = /\A(?:\d{1,3}(?:\.\d{1,3}){3}|[\h:]*:[\h:.]*)\z/
    PORT = /\A\d{1,5}\z/
    # Hosts that Ruby treats as an address.
    SPECIAL_HOSTS = ["", "<any>", "<broadcast>"].freeze
    # The most bytes of a host name: NI_MAXHOST without the NUL.
    MAX_HOST_BYTES = 1024
    # The keyword options of Ruby's own Socket.tcp.
    TCP_OPTIONS = Socket.method(:tcp).parameters.filter_map { |kind, name| name if kind == :key }.freeze

    private_constant :PLAIN_ADDRESS, :PORT, :SPECIAL_HOSTS, :MAX_HOST_BYTES

    class << self
      # @param host [Object]
      # @return [String, nil] the host if it is a name or an address; nil for anything else: Ruby handles it
      def host_text(host)
        text = String.try_convert(host)
        return if text.nil? || SPECIAL_HOSTS.include?(text) || text.bytesize > MAX_HOST_BYTES

        text if text.encoding.ascii_compatible? && !text.b.match?(/\0|\n\z/)
      end

      # @return [Boolean] whether the host is certainly an address that Ruby parses itself; does not use the resolver
      def plain_address?(host) = String === host && host.ascii_only? && host.match?(PLAIN_ADDRESS)

      # @return [Boolean] whether Ruby parses this service itself
      def port?(service)
        case service
        when nil then true
        when Integer then service.between?(0, 0xffff)
        else String === service && service.ascii_only? && service.match?(PORT) && service.to_i <= 0xffff
        end
      end

      # @return [Array(String, Integer), nil] the service and the flags as getaddrinfo(3) takes them; nil if it is not a service;
      #   Ruby then raises the error
      def service_and_flags(service)
        case service
        when nil then [nil, 0]
        when Integer then [service.to_s, Socket::AI_NUMERICSERV]
        else (text = String.try_convert(service)) && !text.b.include?("\0") ? [text, 0] : nil
        end
      end

      # @param text [Object] a host or a service
      # @return [String] for messages: marked as UTF-8, so that strings of different encodings can be joined
      def shown(text) = text.to_s.dup.force_encoding(Encoding::UTF_8)

      # @param target [String] the destination, for the message
      # @return [Exception] what TCPSocket.new raises on this Ruby when its timeout elapses
      def timeout_error(target)
        return IO::TimeoutError.new("user specified timeout for #{target}") if TCP_OPTIONS.include?(:open_timeout)

        Errno::ETIMEDOUT.new("user specified timeout")
      end
    end
  end
end

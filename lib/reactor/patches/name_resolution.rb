# frozen_string_literal: true

require_relative "../socket_arguments"
require_relative "../schedulers"

module Reactor
  module Patches
    # Shared by the patches of Ruby's name-resolving methods. Each of them does what Ruby does if the current fiber has no
    # scheduler of this library, or if it is given an address, which needs no resolver.
    #
    # * A host is resolved, with its service, family and flags, before Ruby sees it. Ruby is given a
    #   {SocketArguments::ResolvedHost} and a {SocketArguments::ResolvedService}, so the result and the errors are Ruby's own.
    # * What is answered without the network (the service of an address, a zone) is asked inline.
    # * What only Ruby can find out (a canonical name, the name of an address, a list of addresses for a named service, an
    #   answer with a zone) it finds out on a worker.
    # * TCPSocket.new and Socket.tcp would block the thread with the Happy Eyeballs of Ruby 3.4 and later, or start two
    #   threads for each call. Here {HappyEyeballs} connects them in the calling fiber.
    #
    # If a subclass of the scheduler has an `address_resolve` of its own, Ruby asks it as ever. TCPSocket.new then does without
    # Happy Eyeballs, which would not ask it.
    #
    # @api private
    module NameResolution
      # The types of sockets that Ruby makes of an address by itself. 0: any.
      COMMON_SOCKET_TYPES = [0, Socket::SOCK_STREAM, Socket::SOCK_DGRAM, Socket::SOCK_RAW].freeze
      private_constant :COMMON_SOCKET_TYPES

      class << self
        # @return [Boolean] whether there is certainly nothing to resolve; cheap
        def nothing_to_resolve?(host, service)
          Fiber.current_scheduler.nil? || (SocketArguments.plain_address?(host) && SocketArguments.port?(service))
        end

        # Resolves the host, and has the block do the rest.
        #
        # @param host [Object] as the program gave it
        # @param service [Object] as the program gave it
        # @param exact [Boolean] whether the result shows the service as it was given, or every answer for it
        # @param limit [Numeric, nil] seconds for the resolver
        # @yieldparam host instead of the one given
        # @yieldparam service instead of the one given
        # @return what the block returns
        def resolve(host, service, family: 0, socktype: 0, protocol: 0, flags: 0, exact: false, limit: nil, &)
          scheduler = Schedulers.current
          text = SocketArguments.host_text(host) if scheduler&.resolves? && [family, socktype, protocol, flags].all?(Integer)
          return yield(host, service) unless text && flags.nobits?(Socket::AI_NUMERICHOST)
          return resolve_address(host, service, text, family, socktype, &) if SocketArguments.address?(text)

          asked, flags = SocketArguments.service_and_flags(service, flags)
          return yield(host, service) unless asked || nil.equal?(service)

          number = SocketArguments.port?(service)
          if COMMON_SOCKET_TYPES.include?(socktype) && (number || !exact) && flags.nobits?(Socket::AI_CANONNAME)
            # Ruby has an error of its own for a host that ends with a newline.
            found = text.b.end_with?("\n") ? [] : scheduler.resolve(text, asked, family, socktype, protocol, flags, limit: limit)
          end
          return scheduler.offload { yield(host, service) } if found.nil? || found.any? { |address| !SocketArguments.without_zone?(address.ip_address) }

          service = SocketArguments::ResolvedService.new(service, found.first.ip_port) unless number || found.empty?
          # Each address once for each kind of socket: Ruby makes the kinds anew. One that stands twice in /etc/hosts stays twice.
          addresses = found.filter_map { |address| address.ip_address if address.socktype == found.first.socktype }
          yield(SocketArguments::ResolvedHost.new(text, addresses), service)
        end

        # {#resolve} for this UDPSocket.
        def resolve_for_udp(socket, host, service, &)
          resolve(host, service, family: Schedulers.current ? socket.local_address.afamily : 0, socktype: Socket::SOCK_DGRAM, &)
        end

        # Has a worker run what may wait for the name of an address.
        #
        # @param waits [Boolean] whether it may
        def on_worker(waits = true, &)
          scheduler = Schedulers.current if waits
          scheduler ? scheduler.offload(&) : yield
        end

        # For an address of the wrong family Ruby asks the hook for other addresses. Without the hook it reports the error.
        def retry_without_hook
          yield
        rescue Socket::ResolutionError
          raise unless Schedulers.current

          Fiber.blocking { yield }
        end

        # @return [Boolean] whether code of another library has replaced one of these methods of Ruby's, as resolv-replace does
        def replaced?(owner, names)
          names.any? do |name|
            file, = owner.instance_method(name).source_location if owner.method_defined?(name) || owner.private_method_defined?(name)
            file && !file.start_with?("<internal:") && File.basename(file) != "socket.rb"
          end
        end

        private

        # An address needs the resolver for its zone and for a named service, which are answered without the network.
        def resolve_address(host, service, text, family, socktype)
          by_ruby = SocketArguments.port?(service) && COMMON_SOCKET_TYPES.include?(socktype) && SocketArguments.without_zone?(text) &&
                    (family.zero? || (family == Socket::AF_INET6) == text.b.include?(":"))
          by_ruby ? yield(host, service) : Fiber.blocking { yield(host, service) }
        end
      end
    end
  end
end
